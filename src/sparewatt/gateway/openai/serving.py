"""The one way from a client to a node, for every endpoint that nodes serve.

An endpoint reads a body into a `Call`; here it is routed, paid for, admitted and dispatched. `serve` does all of it and
writes the reply as it comes. An endpoint whose reply has a shape of its own takes the steps itself:

    caller = await enter(request)
    call = ...                                          # read the body, make a Call of it
    async with errand_for(request, caller, call) as errand:
        await errand.sink.begun()                       # then `answer.refusal`, or take what comes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.core.errors import BodyTooLarge, InvalidField, ShuttingDown, UnsupportedParameter
from sparewatt.core.ids import MatchId, ModelId, new_id
from sparewatt.core.limits import ATTEMPTS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.http import admit_rate, identify, read_body
from sparewatt.gateway.kept_answers import Produce, digest_of, key_of, once
from sparewatt.gateway.openai.answer import answer
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.paying import drop_tab, gate_for, open_tab, price_of
from sparewatt.gateway.openai.routing import Routing, route
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.admission.model import Priority
from sparewatt.inference.admission.rules import priority_named
from sparewatt.inference.capabilities import Needs
from sparewatt.inference.dispatch.model import Gate, Job
from sparewatt.inference.dispatch.prefixes import chain_of
from sparewatt.inference.matcher.model import MatchJob
from sparewatt.inference.matcher.policies import POLICIES, Policy
from sparewatt.inference.metering.service import RunningTab
from sparewatt.policy.carriers import HEADER
from sparewatt.protocol.openai import for_node
from sparewatt.protocol.parameters import NOTED, for_header

POLICY_HEADER = "x-sparewatt-policy"
PRIORITY_HEADER = "x-sparewatt-priority"


class Caller(NamedTuple):
    """Who asks, and what was said outside the body."""

    who: Principal
    policy: Policy
    priority: Priority


async def serve(request: web.Request, read: Callable[[bytes], Call]) -> web.StreamResponse:
    """`read` makes a call of a body, and raises what a client should hear."""
    caller = await enter(request)
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)

    async def produce() -> web.StreamResponse:
        call = read(body)
        async with errand_for(request, caller, call) as errand:
            return await answer(request, errand, call)

    return await answer_once(request, caller, body, produce)


async def answer_once(request: web.Request, caller: Caller, body: bytes, produce: Produce) -> web.StreamResponse:
    """Produce an answer; if the client names its request by an Idempotency-Key, only the first time."""
    name, services = key_of(request.headers), services_of(request)
    if name is None:
        return await produce()
    said = (request.headers.get(HEADER, ""), caller.policy.name)
    digest = digest_of(services.prefix_secret, request.path, body, *said)
    which = (str(caller.who.key_id), name)
    return await once(
        services.answers,
        which,
        digest,
        produce,
        on_repeat=lambda: admit_rate(request),
        now_s=services.clock.now_s,
    )


async def enter(request: web.Request) -> Caller:
    """Before the body is read: whether they may ask at all. Raises what a client should hear."""
    services = services_of(request)
    who = await identify(request)
    require_scope(who, "inference")
    if services.stopping:
        raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=2)
    policy = policy_named(request.headers.get(POLICY_HEADER, services.settings.policy))
    priority = priority_named(request.headers.get(PRIORITY_HEADER, Priority.NORMAL.value), param=PRIORITY_HEADER)
    return Caller(who, policy, priority)


@asynccontextmanager
async def errand_for(request: web.Request, caller: Caller, call: Call) -> AsyncIterator[Errand]:
    """Routed, held for, and started or in line. Whatever is not over at the end is stopped."""
    services, who = services_of(request), caller.who
    routing = heed(call, route_of(call.model, call.provider, request=request, who=who, services=services))
    match = make_match(call, routing, services=services)
    charge, errand = admit_rate(request, tokens=match.prompt_tokens + match.output_tokens), None
    try:
        errand = await _send_off(call, match, routing, caller=caller, services=services)
        yield errand
    finally:
        if errand is not None:
            errand.cancel()
        charge.settle(errand.used_tokens() if errand is not None else 0)


async def _send_off(call: Call, match: MatchJob, routing: Routing, *, caller: Caller, services: Services) -> Errand:
    """Paid for as far as it may cost, and started or in line. Raises what a client should hear."""
    who, price = caller.who, price_of(routing.policy, match.model, services)
    tab = await open_tab(match, call, price, who=who, services=services)
    try:
        payer = who.account_id if tab is not None and tab.spends_promo else None
        needs = Needs(call.needs, declared=bool(routing.policy.require_parameters))
        gate = gate_for(routing, match.model, price=price, payer=payer, services=services, needs=needs)
        job = make_job(call, match, routing, who=who, tab=tab, gate=gate, services=services)
        return Errand(job, routing=routing, policy=caller.policy, priority=caller.priority, tab=tab, services=services)
    except BaseException:
        drop_tab(tab)
        raise


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidField(
            f"There is no policy {name[:40]!r}. Policies: {', '.join(POLICIES)}.", param=POLICY_HEADER
        ) from None


def route_of(model: str, provider: bytes, *, request: web.Request, who: Principal, services: Services) -> Routing:
    return route(
        model,
        header=request.headers.get(HEADER),
        provider=provider,
        who=who,
        network=services.network_policy,
        is_model=lambda name: services.table.entries(name) is not None,
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


def make_match(call: Call, routing: Routing, *, services: Services) -> MatchJob:
    model = ModelId(routing.model)
    typical = services.table.typical_output_tokens(model)
    return MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=call.size.tokens,
        output_tokens=min(call.output_limit or typical, typical) * call.answers,
        prompt_tokens_floor=call.size.tokens_floor,
        preference=routing.preference,
    )


def make_job(
    call: Call,
    match: MatchJob,
    routing: Routing,
    *,
    who: Principal,
    tab: RunningTab | None,
    gate: Gate | None,
    services: Services,
) -> Job:
    job = Job(
        match=match,
        key_id=who.key_id,
        body=_body_for_node(call, routing, tab),
        stream=call.stream,
        wants_usage=call.wants_usage,
        tab=tab,
        gate=gate,
        attempts_max=1 if routing.policy.allow_fallbacks is False else ATTEMPTS_MAX,
        path=call.path,
        allow_resume=routing.policy.allow_resume is not False,
    )
    return _with_prefix(job, call, who, services)


def _with_prefix(job: Job, call: Call, who: Principal, services: Services) -> Job:
    """With its prompt's blocks, where some node would profit: nobody else's prompts are worth hashing."""
    if not services.table.keeps_prefixes(job.match.model):
        return job
    account = str(who.account_id)
    prefix = chain_of(call.prompt, model=job.match.model, account=account, secret=services.prefix_secret)
    return replace(job, prefix=prefix)


def _body_for_node(call: Call, routing: Routing, tab: RunningTab | None) -> bytes:
    """A few bytes longer: a body that just fitted must not break the link to the node by that."""
    limit = tab.output_limit if tab is not None and tab.was_limited else None
    model = routing.model if routing.model != call.model or call.provider else None
    ready = for_node(call.body, stream=call.stream, output_limit=limit, model=model, without=call.foreign)
    if len(ready) > REQUEST_BODY_BYTES_MAX:
        raise BodyTooLarge("The body is too large by a few bytes.")
    return ready
