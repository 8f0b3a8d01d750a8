"""A job from match to last byte. Numbered steps, one way through:

1 match → 2 reserve → 3 attempt → (failed before anything was sent: back to 1, without the nodes tried) → 4 start the
reply → 5 pass on → (failed: a seam, back to 1 with the rest of the answer, among nodes that can go on with it) → 6
finish. What cannot go on ends in an error object: never in a bare end of file, and never by sending something twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.deadlines import Deadlines
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    FirstTokenTimeout,
    JobFailed,
    SparewattError,
    Unprocessable,
    UnsupportedMediaType,
)
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REFUSALS_MAX, RESUME_LOOK_S, SEAMS_MAX
from sparewatt.core.money import NANO_PER_USD, Nano, format_usd
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.choosing import exhausted_error, no_match_error
from sparewatt.inference.dispatch.finder import Finder
from sparewatt.inference.dispatch.learning import STEPS_MIN, predicted_step_s
from sparewatt.inference.dispatch.model import AttemptRecord, DispatchRules, Job, MatchRecord, Move, Outcome, Seen, Sink
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.dispatch.resume import Able, Resume
from sparewatt.inference.dispatch.seam import Seam, ending
from sparewatt.inference.dispatch.straight import Straight
from sparewatt.inference.matcher.model import Candidate, HealthRules, NodeRow
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.link.gateway_end import NodeLink
from sparewatt.protocol.openai import Usage, error_body


class Refused(BadRequest):
    """A model server found fault with the request itself."""


_FAULTS: Mapping[int, type[SparewattError]] = {413: BodyTooLarge, 415: UnsupportedMediaType, 422: Unprocessable}


class Desk(NamedTuple):
    """What all jobs of a gateway share."""

    table: NodeTable
    links: Mapping[NodeId, NodeLink]
    health: HealthRules
    rules: DispatchRules
    seed: int
    clock: Clock
    deadlines: Deadlines
    prefixes: PrefixMemory
    able: Able
    on_over: Callable[[JobRun], None]


class JobRun:
    """Implements AttemptOwner; one instance per job. Whoever made it ends it when its time is up: `run_out_of_time`."""

    __slots__ = (
        "_attempt", "_began_s", "_broken_at_s", "_clock", "_cost_nano", "_desk", "_finder", "_held", "_looking",
        "_over", "_passed_bytes", "_replying", "_rest", "_resumes", "_said_before", "_seam", "_sink", "_speaks",
        "_stale_bytes", "_step_s", "_table", "due_s", "job", "record",
    )  # fmt: skip

    def __init__(self, job: Job, sink: Sink, policy: Policy, desk: Desk) -> None:
        clock = desk.clock
        self.job = job
        self._desk = desk
        self._sink = sink
        self._table = desk.table
        self._clock = clock
        self._began_s = clock.now_s()
        self.due_s = self._began_s + desk.rules.job_s
        """When its time is up."""
        self._finder = Finder(
            table=desk.table,
            policy=policy,
            health=desk.health,
            seed=desk.seed,
            clock=clock,
            prefixes=desk.prefixes,
        )
        self._said_before: dict[NodeId, str] | None = None
        """Errors that model servers answered with, by node."""
        self._attempt: Attempt | None = None
        self._held: Reservation | None = None
        self._step_s = 0.0
        self._replying = False
        self._speaks = False
        """Whether the attempt that runs has said something."""
        self._over = False
        self._resumes: Resume | None = None
        """Made when something breaks, or is looked at: most answers come in one piece."""
        self._rest = job
        """What is left to be done of it."""
        self._seam: Seam | None = None
        self._looking: Timer | None = None
        """Rings when a broken answer should look for a node again."""
        self._broken_at_s = 0.0
        self._cost_nano: Nano | None = None
        """Of the whole answer, once it has been said."""
        self._passed_bytes = 0
        self._stale_bytes = 0
        """Of what the client has not taken yet: bytes that no running attempt waits to hear of."""
        decision = self._finder.decide(job)
        match_s = clock.now_s() - self._began_s
        self.record = MatchRecord(
            job.match.id, job.key_id, clock.unix_s(), decision, match_s=match_s, streamed=job.stream
        )

    @property
    def _resume(self) -> Resume:
        if self._resumes is None:
            self._resumes = Resume(self.job, self._desk.able)
        return self._resumes

    def start(self) -> None:
        best = self.record.decision.best
        if best is None:
            self._fail(no_match_error(self.record.decision, self._table, self.job.gate))
        else:
            self._try(best)

    def cancel(self) -> None:
        """The client is gone: stop the node, keep the books."""
        if not self._over:
            self._stop_attempt(Outcome.CANCELLED, "the client disconnected")
            self._end(Outcome.CANCELLED)

    def break_off(self, error: SparewattError) -> None:
        """Nothing more can be done for it here: end it now, and tell the client why."""
        if not self._ends_complete():
            self._stop_attempt(Outcome.CANCELLED, error.code)
            self._fail(error)

    def consumed(self, n_bytes: int) -> None:
        """The client has taken that much: credit for the node that sent it, if it is still at it."""
        self._passed_bytes -= n_bytes
        if self._stale_bytes:
            stale = min(n_bytes, self._stale_bytes)
            self._stale_bytes -= stale
            n_bytes -= stale
        if n_bytes and self._attempt is not None:
            self._attempt.consumed(n_bytes)

    @property
    def tokens(self) -> int:
        """Written for it so far, by all nodes that tried."""
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
        if not self._speaks:
            self._speak("text/event-stream")
        self._passed_bytes += len(data)
        self._sink.data(data)

    def straight(self) -> Straight | None:
        return self._sink.straight() if self._speaks and not self._stale_bytes else None

    def on_untaken(self, n_bytes: int) -> None:
        self._passed_bytes += n_bytes

    def can_move(self) -> bool:
        if not self._replying or self._attempt is None or not self._resume.can_move(self._attempt.said):
            return False
        return self._attempts_left() and self._resume.gate.may_come(self._finder.tried)

    def price_usd(self, seen: Seen) -> float:
        self.record.attempts[-1].seen = seen
        self._cost_nano = self.job.tab.cost(self.record.attempts) if self.job.tab is not None else Nano(0)
        return self._cost_nano / NANO_PER_USD

    def on_done(self, data: bytes) -> None:
        self._speak("text/event-stream" if self.job.stream else "application/json")
        if data:
            self._send(data)
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
        self._fail(_FAULTS.get(status, Refused)(message))

    def on_failed(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None and self._attempt.was_too_soon:
            self._finder.late.add(self._attempt.record.node_id)
        record = self._close_attempt(outcome, reason)
        if outcome is not Outcome.REFUSED:
            self._table.note_failure(record.node_id, now_s=self._clock.now_s())
        self._go_on(reason)

    def on_server_error(self, status: int, message: str) -> None:
        """A model server answered with an error of its own. Whose fault that was shows when another node has tried."""
        reason = f"status {status}: {message}"
        record = self._close_attempt(Outcome.FAILED, reason)
        before = self._said_before = self._said_before or {}
        if reason in before.values() and not self._replying:
            self._fail(Refused(message))
            return
        before[record.node_id] = reason
        self._go_on(reason)

    def _go_on(self, reason: str) -> None:
        if self._replying:
            self._mend(reason)
        elif self._attempts_left():
            self._next()
        else:
            self._fail(exhausted_error(self.record.attempts))

    # a broken answer

    def _mend(self, reason: str) -> None:
        """The client has a part of the answer: let another node write the rest, or end it as well as can be."""
        finish = self._resume.finish()
        why_not = self._resume.why_not()
        if finish is not None:
            self._end_reply(finish)
        elif why_not is not None:
            self._break_reply(f"{reason}; {why_not}")
        elif not self._attempts_left():
            self._break_reply(reason)
        else:
            self._rest, self._seam = self._resume.rest(), self._resume.seam()
            self._broken_at_s = self._clock.now_s()
            self._seek(reason)

    def _seek(self, reason: str) -> None:
        """Somebody who can go on; if all are full or away, look again for a while: the client is kept waiting."""
        self._looking = None
        best = self._finder.best(self._rest)
        waited_s = self._clock.now_s() - self._broken_at_s
        if best is not None:
            self._try(best)
        elif waited_s < self._desk.rules.resume_wait_s and self._finder.may_come(self._rest):
            self._looking = self._clock.call_later(RESUME_LOOK_S, lambda: self._seek(reason))
        else:
            self._break_reply(f"{reason}; nobody else can go on with it now")

    def _end_reply(self, finish: str) -> None:
        """All is written; its end and its counts are given in the node's place."""
        counts = Usage(self._prompt_tokens(), min(self._resume.tokens, 1 << 24)) if self.job.wants_usage else None
        cost_usd = None if self.job.tab is None else self.job.tab.cost(self.record.attempts) / NANO_PER_USD
        self._send(ending(self._resume.seam(), finish, usage=counts, cost_usd=cost_usd))
        self._succeed()

    def _prompt_tokens(self) -> int:
        """As a node counted it, else as it was guessed."""
        known = [
            a.seen.prompt_tokens - a.carried_tokens
            for a in self.record.attempts
            if a.seen is not None and a.seen.prompt_tokens is not None
        ]
        return max(0, known[-1]) if known else self.job.match.prompt_tokens

    def _break_reply(self, reason: str) -> None:
        message = f"The node was lost in the middle of the answer ({reason}). What came before is incomplete."
        self._fail(JobFailed(message))

    # inside

    def _next(self) -> None:
        best = self._finder.best(self.job)
        if best is None:
            self._fail(exhausted_error(self.record.attempts))
        else:
            self._try(best)

    def _look_again(self) -> None:
        """Whoever was chosen has changed since the policy last looked: choose by what is known now."""
        if self._seam is not None:
            self._seek("the node that was chosen may not have it any more")
            return
        decision = self._finder.decide(self.job)
        if not self.record.attempts:
            self.record.decision = decision
        best = decision.best or self._finder.best(self.job)
        if best is not None:
            self._try(best)
        elif self.record.attempts:
            self._fail(exhausted_error(self.record.attempts))
        else:
            self._fail(no_match_error(decision, self._table, self.job.gate))

    def _try(self, candidate: Candidate) -> None:
        job = self._rest
        if job.gate is not None and not job.gate.admits(candidate.node_id):
            self._finder.tried.add(candidate.node_id)
            self._look_again()
            return
        promised_s = self._promise_s(candidate)
        self._finder.tried.add(candidate.node_id)
        self._held = self._table.reserve(
            candidate.node_id, job.match, now_s=self._clock.now_s(), cached_tokens=candidate.cached_tokens
        )
        row = self._table.get(candidate.node_id)
        if job.stream:
            self._step_s = predicted_step_s(candidate, job.match, row)
        record = AttemptRecord(candidate.node_id, started_ms=self._elapsed_ms())
        if self._seam is not None:
            record.carried_tokens, record.carried_chars = self._seam.tokens, len(self._seam.text)
        if row is not None:
            self._note_price(record, row)
        if self.record.attempts:
            self.record.moves += (Move(len(self.record.attempts), self._finder.ranked),)
        self.record.attempts.append(record)
        self._attempt = Attempt(
            job,
            candidate,
            record,
            owner=self,
            rules=self._desk.rules,
            clock=self._clock,
            deadlines=self._desk.deadlines,
            promised_ttft_s=promised_s,
            seam=self._seam,
        )
        link = self._desk.links.get(candidate.node_id)
        if link is None:
            self.on_failed(Outcome.FAILED, "link_lost: the node has just left")
        else:
            self._attempt.start(link)

    def _note_price(self, record: AttemptRecord, row: NodeRow) -> None:
        """As the node asks now; what it asks for later counts for later jobs."""
        model = row.models[self.job.match.model]
        record.owner = row.owner
        record.prompt_price_nano = model.prompt_price_nano
        record.completion_price_nano = model.completion_price_nano

    def _promise_s(self, candidate: Candidate) -> float:
        """What the node is held to. After two refusals, or when it is asked again, nothing: somebody has to take it."""
        if not self.record.attempts:
            return candidate.predicted_ttft_s
        is_asked_again = candidate.node_id in self._finder.late
        self._finder.late.discard(candidate.node_id)
        return 0.0 if is_asked_again or self._refusals() >= REFUSALS_MAX else candidate.predicted_ttft_s

    def _learn_speed(self) -> None:
        """From the first token to the last, by our own clock, against what the node's figures had promised."""
        record, attempt = self.record.attempts[-1], self._attempt
        if attempt is None or not attempt.started or attempt.had_to_wait or record.first_token_ms is None:
            return
        steps = attempt.tokens - 1
        if steps >= STEPS_MIN:
            observed_s = (self._elapsed_ms() - record.first_token_ms) / 1000
            self._table.note_speed(record.node_id, predicted_s=steps * self._step_s, observed_s=observed_s)

    def _speak(self, content_type: str) -> None:
        """The first word of this attempt is about to be passed on, and perhaps of the whole reply."""
        record, attempt = self.record.attempts[-1], self._attempt
        if record.first_token_ms is None:
            record.first_token_ms = self._elapsed_ms()
            record.seen = attempt.seen if attempt is not None else None
            if self._held is not None:
                self._table.prompt_read(self._held)
            self._note_prefix(record.node_id)
        if not self._replying:
            self._replying = True
            self._sink.start({"content-type": content_type} | self._headers())
        self._speaks = True

    def _send(self, data: bytes) -> None:
        self._passed_bytes += len(data)
        self._sink.data(data)

    def _note_prefix(self, node_id: NodeId) -> None:
        """It has read the prompt, and may still have it when the next one begins alike."""
        row = self._table.get(node_id) if self.job.prefix else None
        model = row.models.get(self.job.match.model) if row is not None else None
        if model is not None:
            tokens, now_s = model.prefix_cache_tokens, self._clock.now_s()
            self._desk.prefixes.note(node_id, model.id, self.job.prefix, capacity_tokens=tokens, now_s=now_s)

    def _headers(self) -> dict[str, str]:
        headers = {"x-sparewatt-match-id": self.job.match.id, "x-sparewatt-attempts": str(len(self.record.attempts))}
        if self.record.attempts:
            node_id = self.record.attempts[-1].node_id
            row = self._table.get(node_id)
            headers |= {"x-sparewatt-node": node_id, "x-sparewatt-region": row.specs.region if row else "unknown"}
        if self.job.tab is not None and not self.job.stream:
            cost = self._cost_nano
            headers["x-sparewatt-cost"] = format_usd(self.job.tab.cost(self.record.attempts) if cost is None else cost)
        return headers

    def _close_attempt(self, outcome: Outcome, reason: str | None) -> AttemptRecord:
        record = self.record.attempts[-1]
        record.outcome, record.reason = outcome, reason
        record.ended_ms = self._elapsed_ms()
        record.tokens = self._attempt.tokens if self._attempt else 0
        was_broken = outcome is not Outcome.DONE or self._seam is not None  # else nobody will ask what it said
        said = self._attempt.said if self._attempt is not None and record.first_token_ms is not None else None
        if said is not None and was_broken:
            record.chars = self._resume.add(said, record.tokens)
        self._stale_bytes = self._passed_bytes
        self._attempt = None
        self._speaks = False
        if self._held is not None:
            self._table.release(self._held)
            self._held = None
        return record

    def _stop_attempt(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._close_attempt(outcome, reason)

    def _attempts_left(self) -> bool:
        """Three that brought nothing, and two refusals on top: a refusal costs nothing and must not use up a good
        request. Whoever wrote a part of the answer is not counted among them, but seams are counted too.
        """
        idle = [attempt for attempt in self.record.attempts if attempt.seen is None]
        seams = len(self.record.attempts) - len(idle)
        return seams <= SEAMS_MAX and len(idle) - min(self._refusals(), REFUSALS_MAX) < self.job.attempts_max

    def _refusals(self) -> int:
        return sum(a.outcome is Outcome.REFUSED for a in self.record.attempts)

    def run_out_of_time(self) -> None:
        if self._ends_complete():
            return
        reason = f"the job took longer than {self._desk.rules.job_s:.0f} s"
        self._stop_attempt(Outcome.TIMED_OUT, reason)
        finish = self._resume.finish() if self._replying else None
        if finish is not None:
            self._end_reply(finish)
        elif self._replying:
            self._break_reply(reason)
        else:
            self._fail(FirstTokenTimeout(f"No answer: {reason}."))

    def _ends_complete(self) -> bool:
        """Whether it is over, or is now because the client has all of it."""
        if not self._over and self._attempt is not None and self._attempt.complete:
            self._attempt.cancel()
            self.on_done(b"")
        return self._over

    def _fail(self, error: SparewattError) -> None:
        """Once a reply has begun, its last event says what is wrong, and no [DONE] follows."""
        if self._replying:
            self._send(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
            self._sink.finish()
            self.record.broke = error.code
        else:
            self._sink.fail(error, self._headers())
            self.record.error_status, self.record.error_code = error.status, error.code
        self._end(Outcome.FAILED)

    def _succeed(self) -> None:
        record = self.record.attempts[-1]
        if record.outcome is Outcome.DONE:
            tokens = record.tokens + record.carried_tokens
            self._table.note_success(record.node_id, model=self.job.match.model, output_tokens=tokens or None)
        for node_id in self._said_before or ():  # the job could be done: the error was theirs
            self._table.note_failure(node_id, now_s=self._clock.now_s())
        self._bill(Outcome.DONE)  # first: the reply says what was used
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
        self._over = True
        if self._looking is not None:
            self._looking.cancel()
        self._desk.on_over(self)

    def _elapsed_ms(self) -> float:
        """To the microsecond: as `round` would, in a tenth of the time."""
        return int((self._clock.now_s() - self._began_s) * 1e6 + 0.5) / 1000
