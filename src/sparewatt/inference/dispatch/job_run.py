"""A job from match to last byte:

1 match → 2 reserve → 3 attempt → (failed before anything was sent: retry from 1, without the nodes tried) → 4 start the
reply → 5 forward → (failed: failover from 1 with the rest of the answer, among nodes that can continue it) → 6 finish.
An answer that cannot be continued ends in an error event, never in a bare end of file, and nothing is sent twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    FirstTokenTimeout,
    JobFailed,
    SparewattError,
    UnprocessableContent,
    UnsupportedMediaType,
)
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REFUSALS_MAX
from sparewatt.core.money import NANO_PER_USD, Nano, format_usd
from sparewatt.core.timer_queue import TimerQueue
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.failover import ContinuationCandidates, Failover, Seam, ending
from sparewatt.inference.dispatch.model import (
    AttemptRecord,
    BilledAnswer,
    DeliveryCount,
    DirectPath,
    DispatchRules,
    Job,
    MatchRecord,
    Outcome,
    Reassignment,
    Sink,
)
from sparewatt.inference.dispatch.node_selection import (
    NodeSelector,
    exhausted_error,
    no_match_error,
)
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.dispatch.served_model import ServedRequest, model_headers, served_name
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.model import Candidate
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.link.gateway_end import NodeLink
from sparewatt.protocol.openai.chat import error_body, with_model

SEAMS_MAX = 8
"""Nodes that may take over one answer after another has begun it: on the shakiest network a long answer still ends."""

RESUME_RETRY_S = 0.25
"""How often a broken answer looks for a node while all that could take it are full or away."""


class RefusedByServer(BadRequest):
    """A model server rejected the request itself."""


_FAULTS: Mapping[int, type[SparewattError]] = {413: BodyTooLarge, 415: UnsupportedMediaType, 422: UnprocessableContent}


class RunState(enum.Enum):
    TRYING = "trying"
    """The client has nothing yet: a failed attempt is invisible."""
    REPLYING = "replying"
    """The client has a part of the answer."""
    RESUMING = "resuming"
    """The node was lost; the run looks for another that can continue the answer."""
    OVER = "over"


class RunContext(NamedTuple):
    """What all jobs of a gateway share."""

    table: NodeTable
    links: Mapping[NodeId, NodeLink]
    health: HealthRules
    rules: DispatchRules
    seed: int
    clock: Clock
    deadlines: TimerQueue
    prefixes: PrefixIndex
    continuations: ContinuationCandidates
    on_over: Callable[[JobRun], None]


class JobRun:
    """Implements AttemptListener; one per job. The dispatcher ends it when its time is up (`time_out`)."""

    __slots__ = (
        "_attempt", "_began_s", "_broken_at_s", "_clock", "_context", "_cost_nano", "_failovers", "_passed_bytes",
        "_remaining", "_renamed", "_reservation", "_seam", "_search_timer", "_selector", "_server_errors", "_sink",
        "_stale_bytes", "_state", "_table", "due_s", "job", "record",
    )  # fmt: skip

    def __init__(self, job: Job, sink: Sink, ranking: Ranking, context: RunContext) -> None:
        clock = context.clock
        self.job = job
        self._context = context
        self._sink = sink
        self._table = context.table
        self._clock = clock
        self._state = RunState.TRYING
        self._began_s = clock.now_s()
        self.due_s = self._began_s + context.rules.job_s
        """When its time is up."""
        self._selector = NodeSelector(
            table=context.table,
            ranking=ranking,
            health=context.health,
            seed=context.seed,
            clock=clock,
            prefixes=context.prefixes,
        )
        self._server_errors: dict[NodeId, str] | None = None
        """Errors that model servers answered with, by node."""
        self._attempt: Attempt | None = None
        self._reservation: Reservation | None = None
        self._failovers: Failover | None = None
        """Created on demand: most answers never need it."""
        self._remaining = job
        """The job, or after a failover the rest of it."""
        self._renamed: tuple[bytes, ServedRequest] | None = None
        """A body, and the request that it became under the name of a node's server."""
        self._seam: Seam | None = None
        self._search_timer: Timer | None = None
        """Fires when a broken answer should look for a node again."""
        self._broken_at_s = 0.0
        self._cost_nano: Nano | None = None
        """The price of the whole answer, once it was sent to the client."""
        self._passed_bytes = 0
        """Given to the sink and not read by the client yet."""
        self._stale_bytes = 0
        """The part of these that came from an attempt that is over, and needs no credit."""
        decision = self._selector.decide(job)
        match_s = clock.now_s() - self._began_s
        self.record = MatchRecord(
            job.match.id, job.key_id, clock.unix_s(), decision, match_s=match_s, streamed=job.call.stream
        )

    @property
    def _failover(self) -> Failover:
        if self._failovers is None:
            self._failovers = Failover(self.job, self._context.continuations)
        return self._failovers

    @property
    def _has_replied(self) -> bool:
        """Whether the client has a part of the answer."""
        return self._state is RunState.REPLYING or self._state is RunState.RESUMING

    @property
    def _has_output(self) -> bool:
        """Whether the running attempt has produced output."""
        return self._attempt is not None and self.record.attempts[-1].first_token_ms is not None

    def start(self) -> None:
        best = self.record.decision.best
        if best is None:
            self._fail(no_match_error(self.record.decision, self._table, self.job.gate))
        else:
            self._try(best)

    def cancel(self) -> None:
        """The client disconnected: stop the node and settle the bill."""
        if self._state is not RunState.OVER:
            self._stop_attempt(Outcome.CANCELLED, "the client disconnected")
            self._end(Outcome.CANCELLED)

    def abort(self, error: SparewattError) -> None:
        """End the job now, with this error for the client."""
        if not self._ends_complete():
            self._stop_attempt(Outcome.CANCELLED, error.code)
            self._fail(error)

    def consumed(self, n_bytes: int) -> None:
        """The client has read these bytes: credit for the node that sent them, if its attempt still runs."""
        self._passed_bytes -= n_bytes
        if self._stale_bytes:
            stale = min(n_bytes, self._stale_bytes)
            self._stale_bytes -= stale
            n_bytes -= stale
        if n_bytes and self._attempt is not None:
            self._attempt.consumed(n_bytes)

    @property
    def tokens(self) -> int:
        """Written for it so far, by all attempts."""
        tokens = self._attempt.tokens if self._attempt is not None else 0
        for each in self.record.attempts:
            tokens += each.tokens
        return tokens

    def tokens_by_node(self) -> Iterator[tuple[NodeId, int]]:
        for each in self.record.attempts:
            yield each.node_id, each.tokens
        if self._attempt is not None:
            yield self._attempt.record.node_id, self._attempt.tokens

    # what an attempt calls

    def on_output(self, data: bytes) -> None:
        if self.record.attempts[-1].first_token_ms is None:
            self._begin_output("text/event-stream")
        if self._attempt is None or not self._attempt.is_complete or self._is_booked():
            self._send(data)

    def direct_path(self) -> DirectPath | None:
        return self._sink.direct_path() if self._has_output and not self._stale_bytes else None

    def on_unread(self, n_bytes: int) -> None:
        self._passed_bytes += n_bytes

    def can_fail_over(self) -> bool:
        if not self._has_replied or self._attempt is None or not self._failover.can_continue(self._attempt.emitted):
            return False
        return self._attempts_left() and self._failover.gate.may_recover(self._selector.tried)

    def on_counted(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None:
        tab, attempts = self.job.tab, self.record.attempts
        attempts[-1].delivered = delivered
        if tab is None:
            return None
        tab.settle(attempts, units)
        billed = tab.billed(attempts)
        self._cost_nano = billed.cost
        return billed

    def on_done(self, data: bytes) -> None:
        if data:
            self.record.attempts[-1].delivered = self._attempt.delivered if self._attempt is not None else None
            if not self._is_booked():
                return
        self._begin_output("text/event-stream" if self.job.call.stream else "application/json")
        if data:
            self._send(data)
        self._settle()
        self._learn_speed()
        self._close_attempt(Outcome.DONE, None)
        self._succeed()

    def on_cut(self) -> None:
        self._close_attempt(Outcome.DONE, "a stop text was complete")
        self._end_reply("stop")

    def on_bad_request(self, status: int, message: str) -> None:
        if self._seam is not None:  # its first node found no fault with it
            self.on_failed(Outcome.FAILED, f"status {status}: {message}")
            return
        self._close_attempt(Outcome.DONE, f"status {status}")
        self._fail(_FAULTS.get(status, RefusedByServer)(message))

    def on_failed(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None and self._attempt.refused_promise:
            self._selector.note_late(self._attempt.candidate, stated_ttft_s=self._attempt.stated_ttft_s)
        record = self._close_attempt(outcome, reason)
        if outcome is not Outcome.REFUSED:
            self._table.note_failure(record.node_id, now_s=self._clock.now_s())
        self._try_elsewhere(reason)

    def on_server_error(self, status: int, message: str) -> None:
        """The model server failed. If a second node gives the same error, the request is at fault."""
        reason = f"status {status}: {message}"
        record = self._close_attempt(Outcome.FAILED, reason)
        before = self._server_errors = self._server_errors or {}
        if reason in before.values() and not self._has_replied:
            self._fail(RefusedByServer(message))
            return
        before[record.node_id] = reason
        self._try_elsewhere(reason)

    def _try_elsewhere(self, reason: str) -> None:
        if self._has_replied:
            self._fail_over(reason)
        elif self._attempts_left():
            self._next()
        else:
            self._fail(exhausted_error(self.record.attempts))

    # failover

    def _fail_over(self, reason: str) -> None:
        """The client has a part of the answer: let another node write the rest, or end the reply with an error."""
        finish = self._failover.finish_reason()
        why_not = self._failover.why_not()
        if finish is not None:
            self._end_reply(finish)
        elif why_not is not None:
            self._break_reply(f"{reason}; {why_not}")
        elif not self._attempts_left():
            self._break_reply(reason)
        else:
            self._remaining, self._seam = self._failover.remaining_job(), self._failover.seam()
            self._broken_at_s = self._clock.now_s()
            self._resume(reason)

    def _resume(self, reason: str) -> None:
        """Try a node that can continue; while all of them are full or offline, retry for a bounded time."""
        self._state, self._search_timer = RunState.RESUMING, None
        best = self._selector.best(self._remaining)
        waited_s = self._clock.now_s() - self._broken_at_s
        if best is not None:
            self._try(best)
        elif waited_s < self._context.rules.resume_wait_s and self._selector.may_recover(self._remaining):
            self._search_timer = self._clock.call_later(RESUME_RETRY_S, lambda: self._resume(reason))
        else:
            self._break_reply(f"{reason}; no other node can continue it now")

    def _end_reply(self, finish: str) -> None:
        """All text is written: send the finish reason and the usage in place of the node."""
        counts, tab, cost_usd = self._failover.claimed(self.record.attempts), self.job.tab, None
        if tab is not None:
            counts, cost = tab.billed(self.record.attempts)
            cost_usd = cost / NANO_PER_USD
        if not self._is_booked():
            return
        usage = counts if self.job.call.wants_usage else None
        self._send(ending(self._failover.seam(), finish, usage=usage, cost_usd=cost_usd))
        self._succeed()

    def _break_reply(self, reason: str) -> None:
        message = f"The node was lost in the middle of the answer ({reason}). What came before is incomplete."
        self._fail(JobFailed(message))

    # attempts

    def _next(self) -> None:
        best = self._selector.best(self.job)
        if best is None:
            self._fail(exhausted_error(self.record.attempts))
        else:
            self._try(best)

    def _match_again(self) -> None:
        """The chosen node has changed and the policy rejects it now: choose another."""
        if self._seam is not None:
            self._resume("the policy no longer allows the chosen node")
            return
        decision = self._selector.decide(self.job)
        if not self.record.attempts:
            self.record.decision = decision
        best = decision.best or self._selector.best(self.job)
        if best is not None:
            self._try(best)
        elif self.record.attempts:
            self._fail(exhausted_error(self.record.attempts))
        else:
            self._fail(no_match_error(decision, self._table, self.job.gate))

    def _try(self, candidate: Candidate) -> None:
        job = self._remaining
        if job.gate is not None and not job.gate.admits(candidate.node_id):
            self._selector.tried.add(candidate.node_id)
            self._match_again()
            return
        promised_s = self._promise_s(candidate)
        self._selector.tried.add(candidate.node_id)
        self._reservation = self._table.reserve(
            candidate.node_id,
            job.match,
            now_s=self._clock.now_s(),
            cached_tokens=candidate.cached_tokens,
            is_streamed=job.call.stream,
        )
        record = self._add_record(candidate)
        self._attempt = Attempt(
            job,
            candidate,
            record,
            owner=self,
            rules=self._context.rules,
            clock=self._clock,
            deadlines=self._context.deadlines,
            promised_ttft_s=promised_s,
            seam=self._seam,
            served=self._served_request(candidate.node_id, job),
        )
        link = self._context.links.get(candidate.node_id)
        if link is None:
            self.on_failed(Outcome.FAILED, "link_lost: the node has just left")
        else:
            self._attempt.start(link)

    def _served_request(self, node_id: NodeId, job: Job) -> ServedRequest | None:
        """The request under the name that the node's server uses; None if the job has that name already."""
        name = served_name(job.match.model, self._table.get(node_id))
        if name == job.body_model or not job.body_model:
            return None if name == job.match.model else ServedRequest(name, job.body)
        renamed = self._renamed
        if renamed is None or renamed[0] is not job.body or renamed[1].model != name:
            renamed = self._renamed = job.body, ServedRequest(name, with_model(job.body, name))
        return renamed[1]

    def _add_record(self, candidate: Candidate) -> AttemptRecord:
        row = self._table.get(candidate.node_id)
        record = AttemptRecord(candidate.node_id, started_ms=self._elapsed_ms())
        if self._seam is not None:
            record.carried_tokens, record.carried_chars = self._seam.tokens, len(self._seam.text)
        if row is not None:
            self._note_price(record, row)
        if self.record.attempts:
            self.record.reassignments += (Reassignment(len(self.record.attempts), self._selector.ranked),)
        self.record.attempts.append(record)
        return record

    def _note_price(self, record: AttemptRecord, row: NodeRow) -> None:
        """The node's price now; a later change counts for later jobs."""
        model = row.models[self.job.match.model]
        record.owner = row.owner
        record.prompt_price_nano = model.prompt_price_nano
        record.completion_price_nano = model.completion_price_nano

    def _promise_s(self, candidate: Candidate) -> float:
        """The first-token time that the node must keep; 0 (none) after two refusals, or at its second try."""
        if not self.record.attempts:
            return candidate.predicted_ttft_s
        is_asked_again = candidate.node_id in self._selector.late_nodes
        self._selector.late_nodes.pop(candidate.node_id, None)
        return 0.0 if is_asked_again or self._refusals() >= REFUSALS_MAX else candidate.predicted_ttft_s

    def _learn_speed(self) -> None:
        """How many steps the answer took since its first token, by the gateway's clock."""
        attempt, reservation = self._attempt, self._reservation
        if attempt is None or reservation is None or attempt.was_throttled:
            return
        steps = attempt.tokens - 1 if reservation.is_streamed else attempt.tokens
        self._table.note_answer(reservation, steps=steps, now_s=self._clock.now_s())

    def _begin_output(self, content_type: str) -> None:
        """Before the first output of this attempt is forwarded: note it, and start the reply if it is the first."""
        record, attempt = self.record.attempts[-1], self._attempt
        if record.first_token_ms is None:
            record.first_token_ms = self._elapsed_ms()
            record.delivered = attempt.delivered if attempt is not None else None
            if self._reservation is not None and self.job.call.stream:
                self._table.note_first_token(self._reservation, now_s=self._clock.now_s())
            self._note_prefix(record.node_id)
        is_first = self._state is RunState.TRYING
        self._state = RunState.REPLYING
        if is_first:
            self._sink.start({"content-type": content_type} | self._headers())

    def _send(self, data: bytes) -> None:
        self._passed_bytes += len(data)
        self._sink.data(data)

    def _note_prefix(self, node_id: NodeId) -> None:
        """The node has read the prompt, and may have it cached for the next prompt that begins alike."""
        row = self._table.get(node_id) if self.job.prefix else None
        model = row.models.get(self.job.match.model) if row is not None else None
        if model is not None:
            tokens, now_s = model.prefix_cache_tokens, self._clock.now_s()
            self._context.prefixes.add(node_id, model.id, self.job.prefix, capacity_tokens=tokens, now_s=now_s)

    def _headers(self) -> dict[str, str]:
        headers = {"x-sparewatt-match-id": self.job.match.id, "x-sparewatt-attempts": str(len(self.record.attempts))}
        if self.record.attempts:
            node_id = self.record.attempts[-1].node_id
            row = self._table.get(node_id)
            headers |= {"x-sparewatt-node": node_id, "x-sparewatt-region": row.specs.region if row else "unknown"}
            headers |= model_headers(self.job.match.model, row)
        if self.job.tab is not None and not self.job.call.stream:
            cost = self._cost_nano
            cost = self.job.tab.billed(self.record.attempts).cost if cost is None else cost
            headers["x-sparewatt-cost"] = format_usd(cost)
        return headers

    def _settle(self) -> None:
        """Decide what the running attempt is paid for: once, and before its tokens count for anything."""
        attempt, tab = self._attempt, self.job.tab
        delivered = self.record.attempts[-1].delivered
        if attempt is None or tab is None or delivered is None:
            return
        if delivered.paid_completion_tokens is None:
            tab.settle(self.record.attempts, attempt.units())

    def _close_attempt(self, outcome: Outcome, reason: str | None) -> AttemptRecord:
        self._settle()
        record, attempt = self.record.attempts[-1], self._attempt
        record.outcome, record.reason = outcome, reason
        record.ended_ms = self._elapsed_ms()
        record.tokens = attempt.tokens if attempt is not None else 0
        was_broken = outcome is not Outcome.DONE or self._seam is not None  # else no node will continue it
        emitted = attempt.emitted if attempt is not None and record.first_token_ms is not None else None
        if emitted is not None and was_broken:
            record.chars = self._failover.add(emitted, record.tokens)
        self._stale_bytes = self._passed_bytes
        self._attempt = None
        if self._reservation is not None:
            self._table.release(self._reservation, now_s=self._clock.now_s())
            self._reservation = None
        return record

    def _stop_attempt(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._close_attempt(outcome, reason)

    def _attempts_left(self) -> bool:
        """Allowed are `attempts_max` attempts without output, plus two refusals, which cost nothing.

        Attempts that wrote a part of the answer are bounded by SEAMS_MAX instead.
        """
        idle = [attempt for attempt in self.record.attempts if attempt.delivered is None]
        seams = len(self.record.attempts) - len(idle)
        return seams <= SEAMS_MAX and len(idle) - min(self._refusals(), REFUSALS_MAX) < self.job.attempts_max

    def _refusals(self) -> int:
        return sum(a.outcome is Outcome.REFUSED for a in self.record.attempts)

    # its end

    def time_out(self) -> None:
        if self._ends_complete():
            return
        reason = f"the job took longer than {self._context.rules.job_s:.0f} s"
        self._stop_attempt(Outcome.TIMED_OUT, reason)
        finish = self._failover.finish_reason() if self._has_replied else None
        if finish is not None:
            self._end_reply(finish)
        elif self._has_replied:
            self._break_reply(reason)
        else:
            self._fail(FirstTokenTimeout(f"No answer: {reason}."))

    def _ends_complete(self) -> bool:
        """Whether the job is over; ends it if the client has the whole answer already."""
        if self._state is not RunState.OVER and self._attempt is not None and self._attempt.is_complete:
            self._attempt.cancel()
            self.on_done(b"")
        return self._state is RunState.OVER

    def _fail(self, error: SparewattError) -> None:
        """If the reply has begun, its last event is the error, and no [DONE] follows."""
        if self._has_replied:
            self._send(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
            self._sink.finish()
            self.record.stream_error_code = error.code
        else:
            self._sink.fail(error, self._headers())
            self.record.error_status, self.record.error_code = error.status, error.code
        self._end(Outcome.FAILED)

    def _is_booked(self) -> bool:
        """Journal the whole answer before the client has its end. If that fails, the reply ends in an error instead."""
        self._settle()
        try:
            if self.job.tab is not None:
                self.job.tab.note_complete(self.record.attempts)
        except SparewattError as error:
            self._stop_attempt(Outcome.CANCELLED, error.code)
            self._fail(error)
            return False
        return True

    def _succeed(self) -> None:
        record = self.record.attempts[-1]
        if record.outcome is Outcome.DONE:
            tokens = record.tokens + record.carried_tokens
            self._table.note_success(record.node_id, model=self.job.match.model, output_tokens=tokens or None)
        for node_id in self._server_errors or ():  # the job could be done: the error was the node's fault
            self._table.note_failure(node_id, now_s=self._clock.now_s())
        self._bill(Outcome.DONE)  # before `finish`: the reply's headers report what was used
        self._sink.finish()
        self._leave()

    def _end(self, outcome: Outcome) -> None:
        self._bill(outcome)
        self._leave()

    def _bill(self, outcome: Outcome) -> None:
        self.record.outcome = outcome
        if self.job.tab is not None:
            self.job.tab.close(outcome, self.record.attempts)

    def _leave(self) -> None:
        self._state = RunState.OVER
        if self._search_timer is not None:
            self._search_timer.cancel()
        self._context.on_over(self)

    def _elapsed_ms(self) -> float:
        """To the microsecond: as `round` would, in a tenth of the time."""
        return int((self._clock.now_s() - self._began_s) * 1e6 + 0.5) / 1000
