"""A job from match to last byte:

1 match → 2 reserve → 3 attempt → (failed before anything was sent: retry from 1, without the nodes tried) → 4 start the
reply → 5 forward → (failed: failover from 1 with the rest of the answer, among nodes that can continue it) → 6 finish.
An answer that cannot be continued ends in an error event, never in a bare end of file, and nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from sparewatt.core.clock import Timer
from sparewatt.core.errors import FirstTokenTimeout, JobFailed, SparewattError
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REFUSALS_MAX
from sparewatt.inference.dispatch.answer_observer import AnswerObserver
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.attempt_factory import AttemptContext, AttemptFactory
from sparewatt.inference.dispatch.failover import ContinuationCandidates, Failover, Seam, ending
from sparewatt.inference.dispatch.failure_reasons import ServerError, failure_reason
from sparewatt.inference.dispatch.hedging import HedgeBudget, HedgedAttempt
from sparewatt.inference.dispatch.model import (
    AttemptRecord,
    BilledAnswer,
    DeliveryCount,
    DirectPath,
    Job,
    MatchRecord,
    Outcome,
    Reassignment,
    RunState,
    Sink,
)
from sparewatt.inference.dispatch.node_selection import NodeSelector, exhausted_error, no_match_error
from sparewatt.inference.dispatch.prefix_index import PrefixIndex, note_prompt
from sparewatt.inference.dispatch.refusal_review import RefusalReview
from sparewatt.inference.dispatch.run_bill import RunBill
from sparewatt.inference.dispatch.served_model import reply_headers
from sparewatt.inference.matcher.formula import Ranking
from sparewatt.inference.matcher.model import Candidate
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.text_units import CompletionUnits
from sparewatt.protocol.openai.chat import error_body

RESUME_RETRY_S = 0.25
"""How often a broken answer looks for a node while all that could take it are full or away."""


class RunContext(NamedTuple):
    """What all jobs of a gateway share."""

    attempts: AttemptContext
    health: HealthRules
    seed: int
    prefixes: PrefixIndex
    continuations: ContinuationCandidates
    hedges: HedgeBudget
    on_over: Callable[[JobRun], None]
    answers: AnswerObserver | None = None


class JobRun:
    """One per job. Implements AttemptListener and HedgeOwner. The dispatcher ends it when its time is up."""

    __slots__ = (
        "_attempt", "_began_s", "_bill", "_broken_at_s", "_clock", "_context", "_factory", "_failovers", "_hedge",
        "_passed_bytes", "_remaining", "_reservation", "_review", "_seam", "_search_timer", "_selector", "_sink",
        "_stale_bytes", "_state", "_table", "due_s", "job", "record",
    )  # fmt: skip

    def __init__(self, job: Job, sink: Sink, ranking: Ranking, context: RunContext) -> None:
        clock, table = context.attempts.clock, context.attempts.table
        self.job = job
        self._context = context
        self._sink = sink
        self._table = table
        self._clock = clock
        self._state = RunState.TRYING
        self._began_s = clock.now_s()
        self.due_s = self._began_s + context.attempts.rules.job_s
        """When its time is up."""
        self._selector = NodeSelector(
            table=table,
            ranking=ranking,
            health=context.health,
            seed=context.seed,
            clock=clock,
            prefixes=context.prefixes,
        )
        self._review: RefusalReview | None = None
        """Of the errors that model servers answered with; most jobs meet none."""
        self._hedge: HedgedAttempt | None = None
        """A second attempt that races the first, before either has output."""
        self._attempt: Attempt | None = None
        self._reservation: Reservation | None = None
        self._failovers: Failover | None = None
        """Created on demand: most answers never need it."""
        self._remaining = job
        """The job, or after a failover the rest of it."""
        self._factory = AttemptFactory(context.attempts)
        self._seam: Seam | None = None
        self._search_timer: Timer | None = None
        """Fires when a broken answer should look for a node again."""
        self._broken_at_s = 0.0
        self._passed_bytes = 0
        """Given to the sink and not read by the client yet."""
        self._stale_bytes = 0
        """The part of these that came from an attempt that is over, and needs no credit."""
        decision = self._selector.decide(job)
        match_s = clock.now_s() - self._began_s
        self.record = MatchRecord(
            job.match.id, job.key_id, clock.unix_s(), decision, match_s=match_s, streamed=job.call.stream
        )
        self._bill = RunBill(job.tab, self.record.attempts)

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
        return self._attempt is not None and self._attempt.record.first_token_ms is not None

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
        if not self._has_replied:
            return self.can_try_elsewhere()
        if self._attempt is None or not self._failover.can_continue(self._attempt.emitted):
            return False
        return self._attempts_left() and self._failover.gate.may_recover(self._selector.tried)

    def is_leased(self, node_id: NodeId, order_id: str) -> bool:
        return self._context.attempts.is_leased(node_id, order_id)

    def on_counted(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None:
        return self._bill.count(delivered, units)

    def can_try_elsewhere(self) -> bool:
        return self._hedge is not None or (
            self._attempts_left() and self._selector.next_open(self._remaining) is not None
        )

    def prompts_ahead_s(self) -> float:
        row = self._table.get(self._attempt.candidate.node_id) if self._attempt is not None else None
        return row.own_unread_s if row is not None else 0.0

    def on_done(self, data: bytes) -> None:
        if data:
            self.record.attempts[-1].delivered = self._attempt.delivered if self._attempt is not None else None
            if not self._is_booked():
                return
        self._begin_output("text/event-stream" if self.job.call.stream else "application/json")
        if data:
            self._send(data)
        self._bill.settle(self._attempt)
        if (answers := self._context.answers) is not None and self._attempt is not None and self._seam is None:
            answers.on_answer(self.job, self.record.attempts[-1], self._attempt, data)
        is_possible = self._learn_speed()
        self._close_attempt(Outcome.DONE, None)
        self._succeed(is_possible=is_possible)

    def on_cut(self) -> None:
        self._close_attempt(Outcome.DONE, "a stop text was complete")
        self._end_reply("stop")

    def on_bad_request(self, error: ServerError) -> None:
        if self._seam is not None:  # its first node found no fault with it
            self.on_failed(Outcome.FAILED, error.reason)
        else:
            self.on_server_error(error)

    def on_failed(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None and self._attempt.refused_promise:
            self._selector.note_late(self._attempt.candidate, stated_ttft_s=self._attempt.stated_ttft_s)
        record = self._close_attempt(outcome, reason)
        if outcome is not Outcome.REFUSED:
            self._note_failure(record.node_id)
        self._try_elsewhere(reason)

    def on_server_error(self, error: ServerError) -> None:
        """The model server rejected the request or failed. If a second node does the same, the request is at fault."""
        record = self._close_attempt(Outcome.FAILED, error.reason)
        if not self._is_agreed(record, error):
            self._try_elsewhere(error.reason)

    def _is_agreed(self, record: AttemptRecord, error: ServerError) -> bool:
        """Whether a second node gives the like; then the client hears it, in our words."""
        if self._review is None:
            self._review = RefusalReview(self._table, self.job.match.model, self.job.call.needs)
        owners = self._review.owners
        is_last_owner = bool(owners) and self._selector.best_of_others(self.job, owners) is None
        agreed = self._review.add(record, error, any_owner=is_last_owner)
        if agreed is None or self._has_replied:
            return False
        self._stop_attempt(Outcome.CANCELLED, "the request was rejected meanwhile")
        self._fail(agreed)
        return True

    def _note_failure(self, node_id: NodeId) -> None:
        self._table.note_failure(node_id, model=self.job.match.model, now_s=self._clock.now_s())

    def _try_elsewhere(self, reason: str) -> None:
        if self._has_replied:
            self._fail_over(reason)
        elif self._hedge is not None:
            self._take_over(self._hedge)
        elif self._attempts_left():
            self._next()
        else:
            self._give_up()

    def _give_up(self) -> None:
        """No node is left to ask."""
        refusal = self._review.last_word(self.record.attempts) if self._review is not None else None
        self._fail(refusal or exhausted_error(self.record.attempts))

    # hedging

    def on_slow(self) -> None:
        """Ask a second node as well, if the budget allows it: the first output wins."""
        if self._state is not RunState.TRYING or self._seam is not None or self._hedge is not None:
            return
        found = self._selector.next_open(self.job)
        may = found is not None and (self.job.gate is None or self.job.gate.admits(found.node_id))
        if found is None or not may or not self._attempts_left() or not self._context.hedges.take():
            return
        self._selector.tried.add(found.node_id)
        reservation = self._factory.reserve(found, self.job)
        hedge = self._hedge = HedgedAttempt(self, found, self._new_record(found), reservation)
        hedge.attempt = self._factory.attempt(self.job, found, hedge.record, hedge)
        link = self._factory.link(found)
        if link is None:
            hedge.on_failed(Outcome.FAILED, failure_reason("link_lost"))
        else:
            hedge.attempt.start(link)

    def adopt(self, hedge: HedgedAttempt) -> None:
        if self._hedge is not hedge:
            return
        slow = self._attempt
        self._hedge = None
        if slow is not None:
            slow.cancel()
            self._close_attempt(Outcome.CANCELLED, "another node was faster")
            self._table.note_slow(slow.record.node_id, model=self.job.match.model, now_s=self._clock.now_s())
        self._take_over(hedge)

    def _take_over(self, hedge: HedgedAttempt) -> None:
        """The hedge is the job's only attempt from now on."""
        self._hedge = None
        self._append(hedge.record)
        self._attempt, self._reservation = hedge.attempt, hedge.reservation
        if hedge.attempt is not None:
            hedge.attempt.owner = self

    def on_hedge_failed(self, hedge: HedgedAttempt, outcome: Outcome, reason: str) -> None:
        self._drop_hedge(hedge, outcome, reason)
        if outcome is not Outcome.REFUSED:
            self._note_failure(hedge.record.node_id)

    def on_hedge_refused(self, hedge: HedgedAttempt, error: ServerError) -> None:
        self._drop_hedge(hedge, Outcome.FAILED, error.reason)
        self._is_agreed(hedge.record, error)

    def _drop_hedge(self, hedge: HedgedAttempt, outcome: Outcome, reason: str) -> None:
        """It delivered nothing. Its record goes before that of the attempt that still runs."""
        self._hedge = None
        if hedge.attempt is not None:
            hedge.attempt.cancel()
        self._table.release(hedge.reservation, now_s=self._clock.now_s())
        record = hedge.record
        record.outcome, record.reason, record.ended_ms = outcome, reason, self._elapsed_ms()
        self.record.insert_before_last(record)

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
        elif waited_s < self._context.attempts.rules.resume_wait_s and self._selector.may_recover(self._remaining):
            self._search_timer = self._clock.call_later(RESUME_RETRY_S, lambda: self._resume(reason))
        else:
            self._break_reply(f"{reason}; no other node can continue it now")

    def _end_reply(self, finish: str) -> None:
        """All text is written: send the finish reason and the usage in place of the node."""
        counts, cost_usd = self._bill.total(self._failover.claimed(self.record.attempts))
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
        owners = self._review.owners if self._review is not None else ()
        best = self._selector.best_of_others(self.job, owners) if owners else None
        best = best or self._selector.best(self.job)
        if best is None:
            self._give_up()
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
        self._reservation = self._factory.reserve(candidate, job)
        record = self._new_record(candidate)
        self._append(record)
        self._attempt = self._factory.attempt(job, candidate, record, self, promised_s=promised_s, seam=self._seam)
        link = self._factory.link(candidate)
        if link is None:
            self.on_failed(Outcome.FAILED, failure_reason("link_lost"))
        else:
            self._attempt.start(link)

    def _new_record(self, candidate: Candidate) -> AttemptRecord:
        return self._factory.record(candidate, self.job, started_ms=self._elapsed_ms(), seam=self._seam)

    def _append(self, record: AttemptRecord) -> None:
        if self.record.attempts:
            self.record.reassignments += (Reassignment(len(self.record.attempts), self._selector.ranked),)
        self.record.attempts.append(record)

    def _promise_s(self, candidate: Candidate) -> float:
        """The first-token time that the node must keep; 0 (none) after two refusals, or at its second try."""
        if not self.record.attempts:
            return candidate.predicted_ttft_s
        is_asked_again = candidate.node_id in self._selector.late_nodes
        self._selector.late_nodes.pop(candidate.node_id, None)
        is_refused = self.record.refusals >= REFUSALS_MAX
        return 0.0 if is_asked_again or is_refused else candidate.predicted_ttft_s

    def _learn_speed(self) -> bool:
        """How many steps the answer took, by the gateway's clock. Whether its node can have written it in that time."""
        attempt, reservation = self._attempt, self._reservation
        if attempt is None or reservation is None or attempt.was_throttled:
            return True
        steps = attempt.tokens - 1 if reservation.is_streamed else attempt.tokens
        return self._table.note_answer(reservation, steps=steps, now_s=self._clock.now_s())

    def _begin_output(self, content_type: str) -> None:
        """Before the first output of this attempt is forwarded: note it, and start the reply if it is the first."""
        record, attempt = self.record.attempts[-1], self._attempt
        if record.first_token_ms is None:
            record.first_token_ms = self._elapsed_ms()
            record.delivered = attempt.delivered if attempt is not None else None
            if self.job.call.stream:
                self.on_first_token()
            self._end_race(record.node_id)
            note_prompt(self._context.prefixes, self._table.get(record.node_id), self.job, now_s=self._clock.now_s())
        is_first = self._state is RunState.TRYING
        self._state = RunState.REPLYING
        if is_first:
            self._sink.start({"content-type": content_type} | self._headers())

    def on_first_token(self) -> None:
        """The running attempt has its first token, by the gateway's clock."""
        reservation, match = self._reservation, self.job.match
        if self._hedge is not None:
            self._drop_hedge(self._hedge, Outcome.CANCELLED, "another node was faster")
        if reservation is None:
            return
        now_s = self._clock.now_s()
        if reservation.was_loaded and self._seam is None:
            self._context.attempts.first_tokens.add(match.model, match.prompt_tokens, now_s - reservation.made_at_s)
        self._table.note_first_token(reservation, now_s=now_s)

    def _end_race(self, winner: NodeId) -> None:
        """There is output: what else runs or was said about the request has lost."""
        if self._hedge is not None:
            self._drop_hedge(self._hedge, Outcome.CANCELLED, "another node was faster")
        if self._review is not None:
            self._review.contradict(winner, now_s=self._clock.now_s())

    def _send(self, data: bytes) -> None:
        self._passed_bytes += len(data)
        self._sink.data(data)

    def _headers(self) -> dict[str, str]:
        headers = reply_headers(self.record, self._table)
        return headers if self.job.call.stream else headers | self._bill.headers()

    def _close_attempt(self, outcome: Outcome, reason: str | None) -> AttemptRecord:
        self._bill.settle(self._attempt)
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
        if self._hedge is not None:
            self._drop_hedge(self._hedge, Outcome.CANCELLED, reason)
        if self._attempt is not None:
            self._attempt.cancel()
            self._close_attempt(outcome, reason)

    def _attempts_left(self) -> bool:
        return self.record.has_attempts_left(self.job.attempts_max)

    # its end

    def time_out(self) -> None:
        if self._ends_complete():
            return
        reason = f"the job took longer than {self._context.attempts.rules.job_s:.0f} s"
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
        if self._review is not None:
            self._review.settle()
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
        self._bill.settle(self._attempt)
        try:
            self._bill.note_complete()
        except SparewattError as error:
            self._stop_attempt(Outcome.CANCELLED, error.code)
            self._fail(error)
            return False
        return True

    def _succeed(self, *, is_possible: bool = True) -> None:
        record = self.record.attempts[-1]
        if not is_possible:
            self._note_failure(record.node_id)
        elif record.outcome is Outcome.DONE:
            tokens = record.tokens + record.carried_tokens
            self._table.note_success(record.node_id, model=self.job.match.model, output_tokens=tokens or None)
        self._close_bill(Outcome.DONE)  # before `finish`: the reply's headers report what was used
        self._sink.finish()
        self._leave()

    def _end(self, outcome: Outcome) -> None:
        self._close_bill(outcome)
        self._leave()

    def _close_bill(self, outcome: Outcome) -> None:
        self.record.outcome = outcome
        self._bill.close(outcome)

    def _leave(self) -> None:
        self._state = RunState.OVER
        if self._search_timer is not None:
            self._search_timer.cancel()
        self._context.on_over(self)

    def _elapsed_ms(self) -> float:
        """To the microsecond: as `round` would, in a tenth of the time."""
        return int((self._clock.now_s() - self._began_s) * 1e6 + 0.5) / 1000
