"""The one way from a client to a node, for every endpoint that nodes serve.

An endpoint reads a body into a `Call`; here it is routed, paid for, admitted and dispatched, in steps that wait for
nothing unless they must:

    caller = enter_here(asked)            # or `await enter(asked)`: whether they may ask at all
    plan = Plan(asked, caller, call)      # who may serve it, charged to the key's limits
    tab = plan.open_tab_here()            # or `await plan.open_tab()`: held, as far as it may cost
    errand = plan.errand(tab, sink)       # then `begin` it: started, or in line; the sink hears of the rest

`errand_for` takes them all for an endpoint whose reply has a shape of its own, and is a coroutine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.core.errors import BodyTooLarge, InvalidField, ShuttingDown, UnsupportedParameter
from sparewatt.core.ids import MatchId, ModelId, new_id
from sparewatt.core.limits import ATTEMPTS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.asking import Asked, admit_rate, identify, identify_here, meter_by_key
from sparewatt.gateway.kept_answers import Kept, Made, digest_of, kept, key_of, once
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.errand import Errand, S
from sparewatt.gateway.openai.paying import drop_tab, gate_for, order_for, payer_of, price_of
from sparewatt.gateway.openai.routing import Routing, route
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.gateway.services import Services
from sparewatt.inference.admission.model import Priority
from sparewatt.inference.admission.rules import priority_named
from sparewatt.inference.capabilities import Needs
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.dispatch.prefixes import chain_of
from sparewatt.inference.eligibility import Gate
from sparewatt.inference.matcher.model import MatchJob, Preference
from sparewatt.inference.matcher.policies import POLICIES, Policy
from sparewatt.inference.metering.service import RunningTab
from sparewatt.policy.carriers import HEADER as ROUTE_HEADER
from sparewatt.protocol.openai import for_node
from sparewatt.protocol.parameters import NOTED, for_header

POLICY_HEADER = "x-sparewatt-policy"
PRIORITY_HEADER = "x-sparewatt-priority"
_ROUTE = ROUTE_HEADER.lower()
KEPT_PER_CALLER = 32
"""Models, and sorts of requests, that are remembered of one who asks again and again."""


class Way(NamedTuple):
    """Where a caller's requests for one model may go: the same for all of them."""

    routing: Routing
    preference: Preference


class Caller:
    """Who asks, and what was said outside the body. One that asks again in the same words is the same."""

    __slots__ = ("gates", "payer", "policy", "priority", "ways", "who")

    def __init__(self, who: Principal, policy: Policy, priority: Priority) -> None:
        self.who = who
        self.policy = policy
        self.priority = priority
        self.payer = payer_of(who)
        self.ways: dict[str, Way] = {}
        """By model, for requests that say nothing more about who may serve them."""
        self.gates: dict[tuple[object, ...], Gate | None] = {}
        """Who may serve those requests, by all that this depends on besides."""


def enter_again(asked: Asked, caller: Caller) -> Caller | None:
    """The same as `enter_here`, for one who was let in before and says the same as then."""
    services, key = asked.services, caller.who.key
    if key is None or services.stopping or not services.ring.knows(key):
        return enter_here(asked)
    meter_by_key(asked, key)
    return caller


def enter_here(asked: Asked) -> Caller | None:
    """Before the body is read: whether they may ask at all. None if a browser's session must be looked up first.

    Raises what a client should hear.
    """
    who = identify_here(asked)
    return None if who is None else _entered(asked, who)


async def enter(asked: Asked) -> Caller:
    return _entered(asked, await identify(asked))


def _entered(asked: Asked, who: Principal) -> Caller:
    services, headers = asked.services, asked.headers
    require_scope(who, "inference")
    if services.stopping:
        raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=2)
    policy = policy_named(headers.get(POLICY_HEADER, services.settings.policy))
    said = headers.get(PRIORITY_HEADER)
    priority = Priority.NORMAL if said is None else priority_named(said, param=PRIORITY_HEADER)
    return Caller(who, policy, priority)


class Plan:
    """A call that is routed and charged to its key's limits. `charge` must be settled, however it ends."""

    __slots__ = ("call", "caller", "charge", "match", "price", "routing", "services")

    def __init__(self, asked: Asked, caller: Caller, call: Call) -> None:
        """Raises what a client should hear, having charged nothing."""
        services = asked.services
        way = way_of(asked, caller, call)
        self.call = call
        self.caller = caller
        self.services = services
        self.routing = heed(call, way.routing)
        self.match = match = make_match(call, way, services=services)
        self.charge = admit_rate(asked, tokens=match.prompt_tokens + match.output_tokens)
        self.price = price_of(way.routing.policy, match.model, services)
        """What it can cost at most; None on a network without books."""

    def open_tab_here(self) -> RunningTab | None:
        """Hold what the answer may cost; None if that needs the database, or on a network without books."""
        accounting = self.services.accounting
        if accounting is None or self.price is None:
            return None
        return accounting.metering.open_here(self.caller.payer, order_for(self.match, self.call, self.price))

    async def open_tab(self) -> RunningTab | None:
        """The same, and waits if it must. Raises what a client should hear."""
        accounting = self.services.accounting
        if accounting is None or self.price is None:
            return None
        return await accounting.metering.open(self.caller.payer, order_for(self.match, self.call, self.price))

    def errand(self, tab: RunningTab | None, sink: S) -> Errand[S]:
        """Ready to begin. Raises what a client should hear; then nothing is held any more."""
        caller, routing = self.caller, self.routing
        try:
            job = make_job(self, tab, self._gate(tab))
        except BaseException:
            drop_tab(tab)
            raise
        return Errand(
            job,
            sink,
            routing=routing,
            policy=caller.policy,
            priority=caller.priority,
            tab=tab,
            services=self.services,
        )

    def _gate(self, tab: RunningTab | None) -> Gate | None:
        """Looked up once for all requests of a caller that are alike."""
        call, caller, price, model = self.call, self.caller, self.price, self.match.model
        payer = caller.who.account_id if tab is not None and tab.spends_promo else None
        policy, way = self.routing.policy, caller.ways.get(call.model)
        is_usual = way is not None and way.routing.policy is policy
        key = (call.model, payer, call.needs, price and (price.prompt, price.completion))
        if is_usual and key in caller.gates:
            return caller.gates[key]
        needs = Needs(call.needs, declared=bool(policy.require_parameters))
        gate = gate_for(self.routing, model, price=price, payer=payer, services=self.services, needs=needs)
        if is_usual:
            if len(caller.gates) >= KEPT_PER_CALLER:
                caller.gates.clear()
            caller.gates[key] = gate
        return gate


def way_of(asked: Asked, caller: Caller, call: Call) -> Way:
    """Raises what a client should hear."""
    way = caller.ways.get(call.model)
    is_served = asked.services.table.has_model(call.model)
    if way is not None and is_served and not call.provider:
        return way
    routing = route_of(call.model, call.provider, asked=asked, who=caller.who)
    way = Way(routing, routing.preference)
    if is_served and not call.provider:
        if len(caller.ways) >= KEPT_PER_CALLER:
            caller.ways.clear()
            caller.gates.clear()
        caller.ways[call.model] = way
    return way


@asynccontextmanager
async def errand_for(asked: Asked, caller: Caller, call: Call) -> AsyncIterator[Errand[BufferedSink]]:
    """Routed, held for, and started or in line. Whatever is not over at the end is stopped."""
    plan, errand = Plan(asked, caller, call), None
    try:
        errand = plan.errand(await plan.open_tab(), BufferedSink())
        errand.begin()
        yield errand
    finally:
        if errand is not None:
            errand.cancel()
        plan.charge.settle(errand.used_tokens() if errand is not None else 0)


async def answer_once(
    asked: Asked, caller: Caller, body: bytes, produce: Callable[[], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Produce an answer; if the client names its request by an Idempotency-Key, only the first time."""
    name = key_of(asked.headers)
    if name is None:
        return await produce()
    answers = asked.services.answers
    repeats = Repeats(asked, caller, name, body)
    found = await once(
        answers, repeats.which, repeats.digest, produce, made=made_of, on_repeat=repeats.charge, now_s=repeats.now_s
    )
    return web.Response(body=found.body, headers=found.again()) if isinstance(found, Kept) else found


class Repeats:
    """What is the same in two requests of one Idempotency-Key, if they are the same."""

    def __init__(self, asked: Asked, caller: Caller, name: str, body: bytes) -> None:
        self._asked = asked
        said = (asked.headers.get(_ROUTE, ""), caller.policy.name)
        self.which = (str(caller.who.key_id), name)
        self.digest = digest_of(asked.services.prefix_secret, asked.path, body, *said)
        self.now_s = asked.services.clock.now_s

    def charge(self) -> None:
        """One that is answered from memory counts as a request too."""
        admit_rate(self._asked)


def made_of(reply: web.StreamResponse) -> Made:
    is_whole = isinstance(reply, web.Response) and isinstance(reply.body, bytes)
    return Made(reply.status == 200, kept(reply.body, reply.headers) if is_whole else None)  # type: ignore[attr-defined]


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidField(
            f"There is no policy {name[:40]!r}. Policies: {', '.join(POLICIES)}.", param=POLICY_HEADER
        ) from None


def route_of(model: str, provider: bytes, *, asked: Asked, who: Principal) -> Routing:
    services = asked.services
    return route(
        model,
        header=asked.headers.get(_ROUTE),
        provider=provider,
        who=who,
        network=services.network_policy,
        is_model=services.table.has_model,
    )


def heed(call: Call, routing: Routing) -> Routing:
    """With what the reply must say of the body's own fields. Raises UnsupportedParameter if all of them must count."""
    refused = [name for name in call.ignored if name not in NOTED] if routing.policy.require_parameters else []
    if refused:
        name = refused[0][:80]
        raise UnsupportedParameter(
            f"No node takes the field {name!r}. Leave it out, or leave 'provider.require_parameters' out.", param=name
        )
    if not call.ignored and not call.unsure:
        return routing
    return routing._replace(ignored=(*for_header(call.ignored), *routing.ignored), unsure=call.unsure)


def make_match(call: Call, way: Way, *, services: Services) -> MatchJob:
    model = ModelId(way.routing.model)
    typical = services.table.typical_output_tokens(model)
    limit = call.output_limit
    return MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=call.size.tokens,
        output_tokens=(typical if limit is None or limit > typical else limit) * call.answers,
        prompt_tokens_floor=call.size.tokens_floor,
        preference=way.preference,
    )


def make_job(plan: Plan, tab: RunningTab | None, gate: Gate | None) -> Job:
    call, match, routing, who = plan.call, plan.match, plan.routing, plan.caller.who
    prefix: tuple[int, ...] = ()
    if plan.services.table.keeps_prefixes(match.model):  # nobody else's prompts are worth hashing
        account, secret = str(who.account_id), plan.services.prefix_secret
        prefix = chain_of(call.prompt, model=match.model, account=account, secret=secret, is_text=call.is_text)
    return Job(
        match=match,
        key_id=plan.caller.payer.key,
        body=_body_for_node(call, routing, tab),
        stream=call.stream,
        wants_usage=call.wants_usage,
        tab=tab,
        gate=gate,
        attempts_max=1 if routing.policy.allow_fallbacks is False else ATTEMPTS_MAX,
        prefix=prefix,
        path=call.path,
        allow_resume=routing.policy.allow_resume is not False,
    )


def _body_for_node(call: Call, routing: Routing, tab: RunningTab | None) -> bytes:
    """A few bytes longer: a body that just fitted must not break the link to the node by that."""
    limit = tab.output_limit if tab is not None and tab.was_limited else None
    model = routing.model if routing.model != call.model or call.provider else None
    ready = for_node(call.body, stream=call.stream, output_limit=limit, model=model, without=call.foreign)
    if len(ready) > REQUEST_BODY_BYTES_MAX:
        raise BodyTooLarge("The body is too large by a few bytes.")
    return ready
