"""POST /v1/chat/completions: read, admit, dispatch, write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal, require_scope
from sparewatt.core.errors import BodyTooLarge, InvalidField, ShuttingDown, SparewattError
from sparewatt.core.ids import KeyId, MatchId, ModelId, new_id
from sparewatt.core.limits import ATTEMPTS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.http import admit_rate, error_headers, error_reply, identify, json_reply, read_body
from sparewatt.gateway.openai.paying import drop_tab, gate_for, limit_headers, open_tab, price_of
from sparewatt.gateway.openai.routing import Routing, route
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.gateway.openai.streaming import has_begun, write_stream
from sparewatt.gateway.services import Services, services_of
from sparewatt.inference.admission.model import Applicant, Priority, TicketState
from sparewatt.inference.admission.rules import cost_tokens, priority_named
from sparewatt.inference.admission.service import Ticket
from sparewatt.inference.admission.sizing import size_of
from sparewatt.inference.dispatch.model import Gate, Job
from sparewatt.inference.dispatch.prefixes import chain_of
from sparewatt.inference.dispatch.run import JobRun
from sparewatt.inference.matcher.model import Decision, MatchJob, Rejection
from sparewatt.inference.matcher.policies import POLICIES, Policy
from sparewatt.inference.metering.service import RunningTab
from sparewatt.policy.carriers import HEADER
from sparewatt.protocol.openai import ChatRequest, error_body, for_node, parse_chat

POLICY_HEADER = "x-sparewatt-policy"
PRIORITY_HEADER = "x-sparewatt-priority"
_WORTH_WAITING = frozenset({Rejection.FULL, Rejection.NOT_MEASURED})
"""Reasons that pass by themselves, within seconds, on a node that is there."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    who = await identify(request)
    require_scope(who, "inference")
    if services.stopping:
        raise ShuttingDown("This gateway is stopping. Try again in a moment.", retry_after_s=2)
    policy = policy_named(request.headers.get(POLICY_HEADER, services.settings.policy))
    priority = priority_named(request.headers.get(PRIORITY_HEADER, Priority.NORMAL.value), param=PRIORITY_HEADER)
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
    chat = parse_chat(body)
    routing = route_of(chat.model, chat.provider, request=request, who=who, services=services)
    match = make_match(chat, routing, services=services)
    admit_rate(request, tokens=match.prompt_tokens + match.output_tokens)
    price = price_of(routing.policy, match.model, services)
    tab = await open_tab(match, chat, price, who=who, services=services)
    try:
        payer = who.account_id if tab is not None and tab.spends_promo else None
        gate = gate_for(routing, match.model, price=price, payer=payer, services=services)
        job = make_job(chat, match, routing, body, key_id=who.key_id, tab=tab, gate=gate)
        job = with_prefix(job, chat, who, services)
        errand = Errand(job, policy=policy, priority=priority, tab=tab, services=services)
    except BaseException:
        drop_tab(tab)
        raise
    try:
        return await _reply(request, errand, routing)
    finally:
        errand.cancel()  # does nothing if the job is over


class Errand:
    """One request on its way through: in line if it must, then run, its reply in the sink."""

    def __init__(
        self, job: Job, *, policy: Policy, priority: Priority, tab: RunningTab | None, services: Services
    ) -> None:
        self.job = job
        self.tab = tab
        self.sink = BufferedSink()
        self.run: JobRun | None = None
        self._policy = policy
        self._services = services
        self.ticket = self._admit(priority)

    def _admit(self, priority: Priority) -> Ticket | None:
        admission = self._services.admission
        if admission.must_wait(self.job.match.model) and not self._can_come_true():
            self._start()  # waiting would not help; dispatch says why
            return None
        return admission.admit(applicant_for(self.job, priority), start=self._start, refuse=self._refuse)

    def cancel(self) -> None:
        """The client is gone: out of the line, or off the node."""
        if self.ticket is not None:
            self.ticket.cancel()
        if self.run is not None:
            self.run.cancel()
        else:
            drop_tab(self.tab)

    def consumed(self, n_bytes: int) -> None:
        """The client has taken that much of the reply."""
        if self.run is not None:
            self.run.consumed(n_bytes)

    def _can_come_true(self) -> bool:
        """Whether some node could have the job, if only it had room."""
        decision = self._services.dispatcher.dry_run(self.job.match, policy=self._policy, gate=self.job.gate)
        return is_worth_waiting(decision)

    def _start(self) -> None:
        if self.tab is None:
            self.run = self._services.dispatcher.dispatch(self.job, self.sink, policy=self._policy)
            return
        try:
            self.tab.start()
        except SparewattError as error:
            self._refuse(error)
            return
        self.run = self._services.dispatcher.dispatch(self.job, self.sink, policy=self._policy)
        self.tab.watch(self.run.record.attempts)

    def _refuse(self, error: SparewattError) -> None:
        self.sink.fail(error, {})


def is_worth_waiting(decision: Decision) -> bool:
    return decision.best is not None or any(decision.dropped.get(reason) for reason in _WORTH_WAITING)


def applicant_for(job: Job, priority: Priority) -> Applicant:
    return Applicant(
        key_id=job.key_id,
        model=job.match.model,
        cost_tokens=cost_tokens(job.match.prompt_tokens, job.match.output_tokens),
        priority=priority,
        body_bytes=len(job.body),
    )


def policy_named(name: str) -> Policy:
    try:
        return POLICIES[name]
    except KeyError:
        raise InvalidField(
            f"There is no policy {name[:40]!r}. Policies: {', '.join(POLICIES)}.", param=POLICY_HEADER
        ) from None


def route_of(model: str, provider: msgspec.Raw, *, request: web.Request, who: Principal, services: Services) -> Routing:
    return route(
        model,
        header=request.headers.get(HEADER),
        provider=bytes(provider),
        who=who,
        network=services.network_policy,
        is_model=lambda name: services.table.entries(name) is not None,
    )


def make_match(chat: ChatRequest, routing: Routing, *, services: Services) -> MatchJob:
    size = size_of(map(bytes, chat.messages))
    model = ModelId(routing.model)
    typical = services.table.typical_output_tokens(model)
    return MatchJob(
        id=MatchId(new_id("match", rng=services.rng)),
        model=model,
        prompt_tokens=size.tokens,
        output_tokens=min(chat.output_limit or typical, typical) * (chat.n or 1),
        prompt_tokens_floor=size.tokens_floor,
        preference=routing.preference,
    )


def make_job(
    chat: ChatRequest,
    match: MatchJob,
    routing: Routing,
    body: bytes,
    *,
    key_id: KeyId,
    tab: RunningTab | None,
    gate: Gate | None,
) -> Job:
    streams = bool(chat.stream)
    limit = tab.output_limit if tab is not None and tab.was_limited else None
    model = routing.model if routing.model != chat.model or bytes(chat.provider) else None
    return Job(
        match=match,
        key_id=key_id,
        body=_for_node(body, stream=streams, output_limit=limit, model=model),
        stream=streams,
        wants_usage=chat.wants_usage,
        tab=tab,
        gate=gate,
        attempts_max=1 if routing.policy.allow_fallbacks is False else ATTEMPTS_MAX,
        allow_resume=routing.policy.allow_resume is not False,
    )


def with_prefix(job: Job, chat: ChatRequest, who: Principal, services: Services) -> Job:
    """With its prompt's blocks, where some node would profit: nobody else's prompts are worth hashing."""
    if not services.table.keeps_prefixes(job.match.model):
        return job
    messages, account = map(bytes, chat.messages), str(who.account_id)
    prefix = chain_of(messages, model=job.match.model, account=account, secret=services.prefix_secret)
    return replace(job, prefix=prefix)


def _for_node(body: bytes, *, stream: bool, output_limit: int | None, model: str | None) -> bytes:
    """A few bytes longer: a body that just fitted must not break the link to the node by that."""
    ready = for_node(body, stream=stream, output_limit=output_limit, model=model)
    if len(ready) > REQUEST_BODY_BYTES_MAX:
        raise BodyTooLarge("The body is too large by a few bytes.")
    return ready


async def _reply(request: web.Request, errand: Errand, routing: Routing) -> web.StreamResponse:
    sink, ticket = errand.sink, errand.ticket
    if not errand.job.stream:
        await sink.begun()
    elif not await has_begun(sink):
        early = {"x-sparewatt-match-id": errand.job.match.id, **_queue_headers(ticket), **routing.headers()}
        return await write_stream(request, sink, early | limit_headers(errand.tab), consumed=errand.consumed)
    headers = {**sink.headers, **_queue_headers(ticket), **routing.headers()}
    if ticket is not None and ticket.state is TicketState.REFUSED and sink.error is not None:
        return _refused(sink.error, ticket, headers)
    if sink.error is not None:
        return error_reply(sink.error, headers)
    headers |= limit_headers(errand.tab)
    if not errand.job.stream:
        return web.Response(body=await sink.take_all(), headers=headers)
    return await write_stream(request, sink, headers, consumed=errand.consumed)


def _refused(error: SparewattError, ticket: Ticket, headers: Mapping[str, str]) -> web.Response:
    """Told no by admission: also where in line it stood, or would have."""
    place = {} if ticket.position is None else {"queue_position": ticket.position}
    return json_reply(error_body(error, **place), status=error.status, headers={**error_headers(error), **headers})


def _queue_headers(ticket: Ticket | None) -> dict[str, str]:
    """Only for a job that had to wait."""
    if ticket is None or ticket.position is None:
        return {}
    return {
        "x-sparewatt-queue-position": str(ticket.position),
        "x-sparewatt-queued-ms": f"{ticket.queued_s * 1000:.0f}",
    }
