"""The inference path of a gateway: `InferenceService`, one per process, and `Submission`, one per client's call.

    submission = Submission(service, principal, options, call, sink, charge=…)  # 1 route and charge the rate limit
    submission.hold_here() or await submission.hold()                           # 2 hold the most that it can cost
    submission.begin()                                                          # 3 admission, then dispatch

Step 1 and 2 raise the error for the client. However the call ends, `settle` corrects the charge to the rate limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.accounts.rate_limits import RateCharge
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import BodyTooLarge, InvalidField, ShuttingDown, SparewattError, UnsupportedParameter
from sparewatt.core.ids import AccountId, MatchId, ModelId, new_id
from sparewatt.core.limits import ATTEMPTS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.core.money import Nano
from sparewatt.core.rng import Rng
from sparewatt.inference.admission.model import AdmissionRequest, Priority, TicketState
from sparewatt.inference.admission.rules import cost_tokens, priority_named
from sparewatt.inference.admission.service import AdmissionControl, Ticket
from sparewatt.inference.call import ModelCall
from sparewatt.inference.capabilities import RequiredCapabilities
from sparewatt.inference.dispatch.buffered_sink import BufferedSink
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Job, Sink
from sparewatt.inference.eligibility import Eligibility, PolicyGate
from sparewatt.inference.fleet.model_catalog import ModelCatalog, with_quantization
from sparewatt.inference.fleet.unmet_demand import UnmetDemand
from sparewatt.inference.matcher.formula import RANKINGS, Ranking
from sparewatt.inference.matcher.model import Decision, MatchJob, Rejection
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.rules import deliveries_of
from sparewatt.inference.metering.service import Metering, Payer, Quote, RunningTab
from sparewatt.inference.model_fallback import FallbackSink, is_of_one_model
from sparewatt.inference.price_caps import PriceCaps
from sparewatt.inference.prompt import prefix_hashes
from sparewatt.inference.routing import Routing, route, standing_retention
from sparewatt.ledger.budgets import KeyBudget
from sparewatt.ledger.model import TokenPrice
from sparewatt.policy.model import MaxPrice, Policy, Retention
from sparewatt.policy.model_names.parser import split_quantization
from sparewatt.policy.parser import HEADER as ROUTE_HEADER
from sparewatt.protocol.openai.chat import TOKENS_MAX, error_body, error_headers, for_node
from sparewatt.protocol.openai.parameters import INERT_FIELDS, header_names

RANKING_HEADER = "x-sparewatt-policy"
PRIORITY_HEADER = "x-sparewatt-priority"
_ROUTE = ROUTE_HEADER.lower()
_RETRY_S = 2.0


class RequestOptions(NamedTuple):
    """What a request's headers say about how it is served."""

    ranking: Ranking
    priority: Priority
    route: str | None
    """A line of the policy vocabulary."""


class InferenceService:
    def __init__(
        self,
        *,
        table: NodeTable,
        admission: AdmissionControl,
        dispatcher: Dispatcher,
        eligibility: Eligibility,
        prices: PriceCaps,
        metering: Metering | None,
        network_policy: Policy,
        default_ranking: str,
        prefix_secret: bytes,
        drain: DrainState,
        rng: Rng,
        catalog: ModelCatalog | None = None,
        demand: UnmetDemand | None = None,
    ) -> None:
        """`metering`: None on a network without books. `prefix_secret`: keys the hashes of prompts' beginnings.

        `demand`: counts requests for models that no node has.
        """
        self.table = table
        self.admission = admission
        self.dispatcher = dispatcher
        self.metering = metering
        self.prefix_secret = prefix_secret
        self.catalog = catalog or ModelCatalog()
        self._demand = demand
        self._eligibility = eligibility
        self._prices = prices
        self._network_policy = network_policy
        self._default_ranking = default_ranking
        self._drain = drain
        self._rng = rng

    def options(self, principal: Principal, headers: Mapping[str, str]) -> RequestOptions:
        """What the head of a request decides before its body is read. Raises the error for the client."""
        require_scope(principal, "inference")
        self.refuse_if_draining()
        ranking = self.ranking_named(headers.get(RANKING_HEADER))
        priority = headers.get(PRIORITY_HEADER)
        return RequestOptions(
            ranking,
            Priority.NORMAL if priority is None else priority_named(priority, param=PRIORITY_HEADER),
            headers.get(_ROUTE),
        )

    def refuse_if_draining(self) -> None:
        if self._drain.is_draining:
            raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=_RETRY_S)

    def ranking_named(self, name: str | None) -> Ranking:
        """None: the gateway's default. Raises InvalidField."""
        wanted = self._default_ranking if name is None else name
        try:
            return RANKINGS[wanted]
        except KeyError:
            raise InvalidField(
                f"There is no policy {wanted[:40]!r}. Policies: {', '.join(RANKINGS)}.", param=RANKING_HEADER
            ) from None

    def route(self, model: str, principal: Principal, *, header: str | None, provider: bytes) -> Routing:
        """One policy from network, account, key and request. Raises the error for the client."""
        return route(
            model,
            header=header,
            provider=provider,
            principal=principal,
            network=self._network_policy,
            catalog=self.catalog,
            is_model=self._is_model,
        )

    def retention_of(self, principal: Principal) -> Retention:
        """The longest that anything of its requests may be kept; a request can shorten it."""
        return standing_retention(principal, self._network_policy)

    def _is_model(self, name: str) -> bool:
        """Whether a node has a model of this name, which is more than another one's with a quantization."""
        has_model = self.table.has_model
        if not has_model(name) or (":" not in name and "@" not in name):
            return has_model(name)
        base, quantization = split_quantization(name)
        return quantization is None or not has_model(base)

    def targets(self, call: ModelCall, principal: Principal, *, header: str | None) -> Sequence[Routing]:
        """The models to try, in order; those that would have to wait come last.

        Those that no node has are left out, unless that leaves none.
        """
        first = self.route(call.model, principal, header=header, provider=call.provider)
        if not call.fallbacks and first.quantization is None:
            return (first,)
        others = [self.route(name, principal, header=header, provider=call.provider) for name in call.fallbacks]
        found = [each for routing in (first, *others) for each in self._by_quantization(routing)]
        has_nodes = self.table.capacity.nodes
        served = [routing for routing in found if has_nodes(ModelId(routing.model))]
        for routing in found:
            if served and routing not in served:
                self.note_unserved(routing.model, principal)
        has_free_slot = self.admission.has_free_slot
        served.sort(key=lambda routing: not has_free_slot(ModelId(routing.model)))
        return served or found[:1]

    def _by_quantization(self, routing: Routing) -> list[Routing]:
        """A node with two quantizations of a model has the second under a name of its own."""
        exact = with_quantization(routing.model, routing.quantization)
        is_another = exact != routing.model and self.table.has_model(exact)
        return [routing, routing._replace(model=exact)] if is_another else [routing]

    def note_unserved(self, model: str, principal: Principal) -> None:
        """A request named a model that no connected node has."""
        if self._demand is not None:
            self._demand.note(model, principal.key_id)

    def new_match_id(self) -> MatchId:
        return MatchId(new_id("match", rng=self._rng))

    def price_cap(self, policy: Policy, model: ModelId) -> TokenPrice | None:
        """The highest price per million tokens that a request accepts; None on a network without books.

        Named by its policy; otherwise a few times the model's usual price.
        """
        if self.metering is None:
            return None
        default, named = self._prices.of(model), policy.max_price
        if named is None:
            return default
        prompt = default.prompt if named.prompt is None else Nano(named.prompt)
        completion = default.completion if named.completion is None else Nano(named.completion)
        return TokenPrice(prompt, completion)

    def gate(
        self,
        policy: Policy,
        model: ModelId,
        *,
        price: TokenPrice | None,
        payer: AccountId | None,
        needs: RequiredCapabilities,
    ) -> PolicyGate | None:
        """The nodes that may serve: allowed by the policy, able to, and not dearer than the hold covers.

        `payer`: an account that pays with free credits, whose own nodes may not earn them.
        """
        default_cap = _unnamed_part(policy, price) if price is not None else None
        return self._eligibility.gate(policy, model, payer=payer, default_cap=default_cap, needs=needs)


@lru_cache(maxsize=1024)
def _cap_of(price: TokenPrice) -> MaxPrice:
    return MaxPrice(price.prompt, price.completion)


def _unnamed_part(policy: Policy, price: TokenPrice) -> MaxPrice | None:
    """The part of a price cap that the policy does not name itself; None if it names all."""
    named = policy.max_price
    if named is None:
        return _cap_of(price)
    if named.prompt is not None and named.completion is not None:
        return None
    return MaxPrice(
        price.prompt if named.prompt is None else None, price.completion if named.completion is None else None
    )


LIMIT_HEADER = "x-sparewatt-output-limit"
_WORTH_WAITING = frozenset({Rejection.FULL, Rejection.NOT_MEASURED})
"""Rejections that pass by themselves, within seconds, on a node that is connected."""

S = TypeVar("S", bound=Sink)


class Submission(Generic[S]):
    """One call on its way to a node. The reply goes to `sink`, perhaps before `begin` has returned."""

    __slots__ = (
        "_charge", "_failure", "_is_beginning", "_options", "_out", "_price", "_principal", "_service", "_tab",
        "_targets", "_waiting", "call", "job", "match", "routing", "run", "sink", "ticket",
    )  # fmt: skip

    def __init__(
        self,
        service: InferenceService,
        principal: Principal,
        options: RequestOptions,
        call: ModelCall,
        sink: S,
        *,
        charge: Callable[[int], RateCharge],
    ) -> None:
        """`charge`: charges tokens to the rate limits. Raises the error for the client, with nothing charged."""
        first, *targets = service.targets(call, principal, header=options.route)
        self._service = service
        self._principal = principal
        self._options = options
        self.call = call
        self.sink = sink
        self._targets = targets
        """Models to try if this one cannot answer."""
        self._out: Sink = FallbackSink(sink, self._take_over) if targets else sink
        self._failure: SparewattError | None = None
        """Of the model that `begin` has just tried."""
        self._is_beginning = False
        self._waiting: asyncio.Task[None] | None = None
        """Waits for credits to try another model."""
        self._aim_at(first)
        self._charge: RateCharge | None = charge(self.match.prompt_tokens + self.match.output_tokens)

    def _aim_at(self, routing: Routing) -> None:
        service, call = self._service, self.call
        self.routing = _with_ignored_fields(call, routing)
        self.match = _match_job(service, call, routing)
        self._price = service.price_cap(routing.policy, self.match.model)
        self._tab: RunningTab | None = None
        self.job: Job | None = None
        self.ticket: Ticket | None = None
        self.run: JobRun | None = None

    # trying another model

    def _take_over(self, error: SparewattError) -> bool:
        """Whether the next model is tried instead of failing."""
        if not self._targets:
            return False
        if self._is_beginning:
            self._failure = error
        else:  # on the next tick, when the failed job has released its hold
            asyncio.get_running_loop().call_soon(self._try_next)
        return True

    def _try_next(self) -> None:
        """Outside of `begin`, so errors go to the sink."""
        if not self._targets:  # cancelled meanwhile
            return
        try:
            if self._hold_for_next():
                self.begin()
        except SparewattError as error:
            self.sink.fail(error, {})

    def _hold_for_next(self) -> bool:
        """Aim at the next model. False if its hold needs the database: then it begins later, by itself."""
        self._aim_at(self._targets.pop(0))
        if self.hold_here():
            return True
        self._waiting = asyncio.get_running_loop().create_task(self._begin_when_held())
        return False

    async def _begin_when_held(self) -> None:
        try:
            await self.hold()
            self.begin()
        except SparewattError as error:
            self.sink.fail(error, {})

    # holding credits

    def hold_here(self) -> bool:
        """Hold what the answer may cost, of what this process has in reserve. False if that needs the database."""
        metering = self._service.metering
        if metering is not None and self._price is not None:
            self._tab = metering.open_here(_payer(self._principal), Quote(self.match, self.call, self._price))
            return self._tab is not None
        return True

    async def hold(self) -> None:
        """The same, and waits if it must. Raises InsufficientCredits or KeyBudgetExceeded."""
        metering = self._service.metering
        if metering is not None and self._price is not None:
            self._tab = await metering.open(_payer(self._principal), Quote(self.match, self.call, self._price))

    # starting

    def begin(self) -> None:
        """Start, or wait in line. Raises the error for the client; then nothing is held any more."""
        while True:
            self._failure, self._is_beginning = None, True
            try:
                self._begin_one()
            except SparewattError as error:
                if not self._targets or not is_of_one_model(error):
                    raise
                self._failure = error
            finally:
                self._is_beginning = False
            if self._failure is None or not self._hold_for_next():
                return

    def _begin_one(self) -> None:
        has_begun = False
        try:
            self.job = job = self._make_job()
            self.ticket = self._admit(job)
            has_begun = True
        finally:
            if not has_begun:
                self.drop()

    def _admit(self, job: Job) -> Ticket | None:
        """None if it was started without a ticket."""
        admission, model = self._service.admission, self.match.model
        has_slot = admission.has_free_slot(model)
        if not has_slot and not self._service.table.capacity.nodes(model):
            self._service.note_unserved(model, self._principal)
        if has_slot or (admission.must_wait(model) and not self._is_worth_waiting(job)):
            self._start()  # where waiting would not help, dispatch says why
            return None
        return admission.admit(self._admission_request(job), start=self._start, refuse=self._refuse)

    def _admission_request(self, job: Job) -> AdmissionRequest:
        return AdmissionRequest(
            account_id=self._principal.account_id,
            key_id=job.key_id,
            model=self.match.model,
            cost_tokens=cost_tokens(self.match.prompt_tokens, self.match.output_tokens),
            priority=self._options.priority,
            body_bytes=len(job.body),
        )

    def _is_worth_waiting(self, job: Job) -> bool:
        """Whether some node could have the job, if only it had a free slot."""
        ranking = self._options.ranking
        return is_worth_waiting(self._service.dispatcher.dry_run(self.match, ranking=ranking, gate=job.gate))

    def _start(self) -> None:
        job, tab = self.job, self._tab
        if job is None:
            raise RuntimeError("a submission is started by `begin`")
        if tab is not None:
            try:
                tab.start()
            except SparewattError as error:
                self._refuse(error)
                return
        self.run = self._service.dispatcher.dispatch(job, self._out, ranking=self._options.ranking)
        if tab is not None:
            tab.watch(self.run.record.attempts)

    def _refuse(self, error: SparewattError) -> None:
        self._out.fail(error, {})

    def _make_job(self) -> Job:
        call, policy, tab, service = self.call, self.routing.policy, self._tab, self._service
        payer = self._principal.account_id if tab is not None and tab.spends_promo else None
        needs = RequiredCapabilities(call.needs, declared=bool(policy.require_parameters))
        routed = self.routing
        return Job(
            match=self.match,
            call=call,
            key_id=self._principal.key_id,
            body=self._body_for_node(),
            tab=tab,
            gate=service.gate(policy, self.match.model, price=self._price, payer=payer, needs=needs),
            attempts_max=1 if policy.allow_fallbacks is False else ATTEMPTS_MAX,
            prefix=self._prefix(),
            allow_resume=policy.allow_resume is not False,
            body_model=routed.model if call.provider else call.model,
            reply_model=routed.asked,
            output_limit=self._output_limit(),
            may_check=policy.checks != "none",
        )

    def _output_limit(self) -> int | None:
        each = self.call.output_limit if self._tab is None else self._tab.output_limit
        return None if not each else each * max(1, self.call.answers)

    def _prefix(self) -> tuple[int, ...]:
        """Hashed only for a model of which some node keeps prompts."""
        service, call, model = self._service, self.call, self.match.model
        if not service.table.caches_prefixes(model):
            return ()
        account, secret = str(self._principal.account_id), service.prefix_secret
        return prefix_hashes(call.prompt, model=model, account=account, secret=secret, is_text=call.is_text)

    def _body_for_node(self) -> bytes:
        """A few bytes longer than the client's: one that just fitted must not break the link to the node by that.

        The model's name stays as it is where nothing else has to be rewritten: the node that gets the job decides it.
        """
        call, tab = self.call, self._tab
        limit = tab.output_limit if tab is not None and tab.was_limited else None
        model = self.routing.model if call.provider else None
        body = for_node(call.body, stream=call.stream, output_limit=limit, model=model, without=call.foreign)
        if len(body) > REQUEST_BODY_BYTES_MAX:
            raise BodyTooLarge("The body is too large by a few bytes.")
        return body

    # while it runs

    def cancel(self) -> None:
        """The client is gone: leave the line, or stop the node. Does nothing if the job is over."""
        self._targets = []
        if self._waiting is not None:
            self._waiting.cancel()
        if self.ticket is not None:
            self.ticket.cancel()
        if self.run is not None:
            self.run.cancel()
        else:
            self.drop()

    def consumed(self, n_bytes: int) -> None:
        """The client has taken so many bytes: flow-control credit for the node."""
        if self.run is not None:
            self.run.consumed(n_bytes)

    # at its end

    def drop(self) -> None:
        """Release the hold of a job that never started; once it has, this does nothing."""
        if self._tab is not None:
            self._tab.drop()

    def settle(self) -> None:
        """What was charged to the rate limit at first was an estimate: correct it, once."""
        charge, self._charge = self._charge, None
        if charge is not None:
            charge.settle(self._used_tokens())

    def _used_tokens(self) -> int:
        """Read and written for the client by now, counted as the books do; also where there are none."""
        if self.run is None:
            return 0
        if self._tab is not None:
            return self._tab.used_tokens()
        bound = TOKENS_MAX if self.match.output_tokens else 0
        attempts, estimate = self.run.record.attempts, self.match.prompt_tokens
        found = deliveries_of(attempts, prompt_estimate=estimate, output_bound=bound)
        prompt = max((delivery.prompt_tokens for delivery in found), default=0)  # one, however many nodes read it
        return prompt + sum(delivery.completion_tokens for delivery in found)

    # headers

    def reply_headers(self, dispatched: Mapping[str, str]) -> dict[str, str]:
        """Of an answer: node and cost (`dispatched`), the wait in line, ignored fields, a limit that we set."""
        headers, tab = self._headers(dispatched), self._tab
        if tab is not None and tab.was_limited:
            headers[LIMIT_HEADER] = f"{tab.output_limit}; reason={tab.why}"
        return headers

    def refusal(self, error: SparewattError, dispatched: Mapping[str, str]) -> tuple[dict[str, object], dict[str, str]]:
        """The error object that it came to, and its headers; with its position in line, if admission refused it."""
        ticket, position = self.ticket, {}
        if ticket is not None and ticket.state is TicketState.REFUSED and ticket.position is not None:
            position = {"queue_position": ticket.position}
        return error_body(error, **position), {**error_headers(error), **self._headers(dispatched)}

    def _headers(self, dispatched: Mapping[str, str]) -> dict[str, str]:
        routing, ticket, headers = self.routing, self.ticket, dict(dispatched)
        if ticket is not None and ticket.position is not None:
            headers["x-sparewatt-queue-position"] = str(ticket.position)
            headers["x-sparewatt-queued-ms"] = f"{ticket.queued_s * 1000:.0f}"
        return headers | (routing.headers(server=self._backend()) if routing.unsure else routing.headers())

    def _backend(self) -> str:
        """The kind of model server that has the job, once one has."""
        attempts = self.run.record.attempts if self.run is not None else ()
        row = self._service.table.get(attempts[-1].node_id) if attempts else None
        return row.specs.backend if row is not None else ""


@asynccontextmanager
async def buffered_submission(
    service: InferenceService,
    principal: Principal,
    options: RequestOptions,
    call: ModelCall,
    *,
    charge: Callable[[int], RateCharge],
) -> AsyncIterator[Submission[BufferedSink]]:
    """All steps at once, for an endpoint that is a coroutine and rewrites the reply. What is not over is cancelled."""
    submission = Submission(service, principal, options, call, BufferedSink(), charge=charge)
    try:
        await submission.hold()
        submission.begin()
        yield submission
    finally:
        submission.cancel()
        submission.settle()


def is_worth_waiting(decision: Decision) -> bool:
    return decision.best is not None or any(decision.rejected_by_reason.get(reason) for reason in _WORTH_WAITING)


def _with_ignored_fields(call: ModelCall, routing: Routing) -> Routing:
    """With the body's own fields that have no effect. Raises UnsupportedParameter if all of them must have one."""
    refused = [name for name in call.ignored if name not in INERT_FIELDS] if routing.policy.require_parameters else []
    if refused:
        name = refused[0][:80]
        raise UnsupportedParameter(
            f"No node takes the field {name!r}. Leave it out, or leave 'provider.require_parameters' out.", param=name
        )
    if not call.ignored and not call.unsure:
        return routing
    return routing._replace(ignored=(*header_names(call.ignored), *routing.ignored), unsure=call.unsure)


def _match_job(service: InferenceService, call: ModelCall, routing: Routing) -> MatchJob:
    model = ModelId(routing.model)
    typical, limit = service.table.typical_output_tokens(model), call.output_limit
    return MatchJob(
        id=service.new_match_id(),
        model=model,
        prompt_tokens=call.size.tokens,
        output_tokens=(typical if limit is None or limit > typical else limit) * call.answers,
        prompt_tokens_floor=call.size.tokens_floor,
        preference=routing.preference,
    )


def _payer(principal: Principal) -> Payer:
    key, budget = principal.key, None
    if key is not None and key.budget_nano is not None and key.budget_period is not None:
        budget = KeyBudget(Nano(key.budget_nano), key.budget_period)
    return Payer(principal.account_id, principal.key_id, budget)
