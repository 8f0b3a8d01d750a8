"""A job from match to last byte. Numbered steps, one way through:

1 match → 2 reserve → 3 attempt → (failed before anything was sent: back to 1, without the nodes tried) → 4 start the
reply → 5 pass on → 6 finish. A failure after step 4 ends the stream in an error object: never in a bare end of file,
and never by sending something twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import (
    BadRequest,
    BodyTooLarge,
    FirstTokenTimeout,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    NoEligibleNode,
    SparewattError,
    Unprocessable,
    UnsupportedMediaType,
)
from sparewatt.core.ids import NodeId
from sparewatt.core.limits import REFUSALS_MAX
from sparewatt.core.money import NANO_PER_USD, format_usd
from sparewatt.inference.capabilities import unable_error
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.learning import STEPS_MIN, predicted_step_s
from sparewatt.inference.dispatch.model import AttemptRecord, DispatchRules, Gate, Job, MatchRecord, Outcome, Seen, Sink
from sparewatt.inference.dispatch.prefixes import PrefixMemory
from sparewatt.inference.matcher.explain import nearest_models
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Candidate, Decision, HealthRules, MatchJob, NodeRow, Rejection
from sparewatt.inference.matcher.policies import Policy
from sparewatt.inference.matcher.situation import Situation
from sparewatt.inference.matcher.table import NodeTable, Reservation
from sparewatt.link.gateway_end import NodeLink
from sparewatt.protocol.openai import error_body

RETRY_AFTER_S = 2.0
_MAY_PASS = frozenset({Rejection.OFFLINE, Rejection.DRAINING, Rejection.NOT_MEASURED, Rejection.FULL})
"""Reasons that time can mend: the client is told to come back."""


class Refused(BadRequest):
    """A model server found fault with the request itself."""


_FAULTS: Mapping[int, type[SparewattError]] = {413: BodyTooLarge, 415: UnsupportedMediaType, 422: Unprocessable}


class JobRun:
    """Implements AttemptOwner; one instance per job."""

    def __init__(
        self,
        job: Job,
        sink: Sink,
        *,
        table: NodeTable,
        links: Mapping[NodeId, NodeLink],
        policy: Policy,
        health: HealthRules,
        rules: DispatchRules,
        seed: int,
        clock: Clock,
        prefixes: PrefixMemory,
        on_over: Callable[[JobRun], None],
    ) -> None:
        self.job = job
        self._sink = sink
        self._table = table
        self._links = links
        self._policy = policy
        self._health = health
        self._rules = rules
        self._seed = seed
        self._clock = clock
        self._prefixes = prefixes
        self._on_over = on_over
        self._began_s = clock.now_s()
        self._tried: set[NodeId] = set()
        self._late: set[NodeId] = set()
        """Nodes that would not have kept what was promised; they may have the job if nobody else can."""
        self._said_before: dict[NodeId, str] = {}
        """Errors that model servers answered with, by node."""
        self._attempt: Attempt | None = None
        self._held: Reservation | None = None
        self._step_s = 0.0
        self._replying = False
        self._over = False
        self.record = MatchRecord(job.match.id, job.key_id, clock.unix_s(), self._match())
        self._timer = clock.call_later(rules.job_s, self._run_out_of_time)

    def start(self) -> None:
        if self.record.decision.best is None:
            self._fail(no_match_error(self.record.decision, self._table, self.job.gate))
        else:
            self._try(self.record.decision.best)

    def cancel(self) -> None:
        """The client is gone: stop the node, keep the books."""
        if not self._over:
            self._stop_attempt(Outcome.CANCELLED, "the client disconnected")
            self._end(Outcome.CANCELLED)

    def consumed(self, n_bytes: int) -> None:
        if self._attempt is not None:
            self._attempt.consumed(n_bytes)

    # what an attempt calls

    def on_output(self, data: bytes) -> None:
        if not self._replying:
            self._begin_reply("text/event-stream")
        self._sink.data(data)

    def price_usd(self, seen: Seen) -> float:
        self.record.attempts[-1].seen = seen
        return (self.job.tab.cost(self.record.attempts) if self.job.tab is not None else 0) / NANO_PER_USD

    def on_done(self, data: bytes) -> None:
        if not self._replying:
            self._begin_reply("text/event-stream" if self.job.stream else "application/json")
        if data:
            self._sink.data(data)
        self._learn_speed()
        record = self._close_attempt(Outcome.DONE, None)
        self._table.note_success(record.node_id, model=self.job.match.model, output_tokens=record.tokens or None)
        for node_id in self._said_before:  # the job could be done: the error was theirs
            self._table.note_failure(node_id, now_s=self._clock.now_s())
        self._sink.finish()
        self._end(Outcome.DONE)

    def on_bad_request(self, status: int, message: str) -> None:
        self._close_attempt(Outcome.DONE, f"status {status}")
        self._fail(_FAULTS.get(status, Refused)(message))

    def on_failed(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None and self._attempt.was_too_soon:
            self._late.add(self._attempt.record.node_id)
        record = self._close_attempt(outcome, reason)
        if outcome is not Outcome.REFUSED:
            self._table.note_failure(record.node_id, now_s=self._clock.now_s())
        self._go_on(reason)

    def on_server_error(self, status: int, message: str) -> None:
        """A model server answered with an error of its own. Whose fault that was shows when another node has tried."""
        reason = f"status {status}: {message}"
        record = self._close_attempt(Outcome.FAILED, reason)
        if reason in self._said_before.values():
            self._fail(Refused(message))
            return
        self._said_before[record.node_id] = reason
        self._go_on(reason)

    def _go_on(self, reason: str) -> None:
        if self._replying:
            self._break_reply(reason)
        elif self._attempts_left():
            self._next()
        else:
            self._fail(self._exhausted_error())

    # inside

    def _match(self) -> Decision:
        return match_through(
            self.job.gate,
            self.job.match,
            self._table,
            self._situation(),
            policy=self._policy,
            seed=self._seed,
        )

    def _situation(self) -> Situation:
        now_s = self._clock.now_s()
        held = self._prefixes.held(self.job.prefix, now_s=now_s) if self.job.prefix else None
        return Situation(now_s=now_s, rules=self._health, tried=self._tried, held=held)

    def _next(self) -> None:
        best = self._match().best or self._best_of_late()
        if best is None:
            self._fail(self._exhausted_error())
        else:
            self._try(best)

    def _look_again(self) -> None:
        """Whoever was chosen has changed since the policy last looked: choose by what is known now."""
        decision = self._match()
        if not self.record.attempts:
            self.record.decision = decision
        best = decision.best or self._best_of_late()
        if best is not None:
            self._try(best)
        elif self.record.attempts:
            self._fail(self._exhausted_error())
        else:
            self._fail(no_match_error(decision, self._table, self.job.gate))

    def _best_of_late(self) -> Candidate | None:
        """Nobody is left but nodes that would be later than promised: late is better than never, once."""
        if not self._late:
            return None
        self._tried -= self._late
        return self._match().best

    def _try(self, candidate: Candidate) -> None:
        if self.job.gate is not None and not self.job.gate.admits(candidate.node_id):
            self._tried.add(candidate.node_id)
            self._look_again()
            return
        promised_s = self._promise_s(candidate)
        self._tried.add(candidate.node_id)
        self._held = self._table.reserve(
            candidate.node_id, self.job.match, now_s=self._clock.now_s(), cached_tokens=candidate.cached_tokens
        )
        row = self._table.get(candidate.node_id)
        self._step_s = predicted_step_s(candidate, self.job.match, row)
        record = AttemptRecord(candidate.node_id, started_ms=self._elapsed_ms())
        if row is not None:
            self._note_price(record, row)
        self.record.attempts.append(record)
        self._attempt = Attempt(
            self.job,
            candidate,
            record,
            owner=self,
            rules=self._rules,
            clock=self._clock,
            promised_ttft_s=promised_s,
        )
        link = self._links.get(candidate.node_id)
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
        is_asked_again = candidate.node_id in self._late
        self._late.discard(candidate.node_id)
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

    def _begin_reply(self, content_type: str) -> None:
        self._replying = True
        record = self.record.attempts[-1]
        record.first_token_ms = self._elapsed_ms()
        record.seen = self._attempt.seen if self._attempt is not None else None
        if self._held is not None:
            self._table.prompt_read(self._held)
        self._note_prefix(record.node_id)
        self._sink.start({"content-type": content_type} | self._headers())

    def _note_prefix(self, node_id: NodeId) -> None:
        """It has read the prompt, and may still have it when the next one begins alike."""
        row = self._table.get(node_id) if self.job.prefix else None
        model = row.models.get(self.job.match.model) if row is not None else None
        if model is not None:
            tokens, now_s = model.prefix_cache_tokens, self._clock.now_s()
            self._prefixes.note(node_id, model.id, self.job.prefix, capacity_tokens=tokens, now_s=now_s)

    def _headers(self) -> dict[str, str]:
        headers = {"x-sparewatt-match-id": self.job.match.id, "x-sparewatt-attempts": str(len(self.record.attempts))}
        if self.record.attempts:
            node_id = self.record.attempts[-1].node_id
            row = self._table.get(node_id)
            headers |= {"x-sparewatt-node": node_id, "x-sparewatt-region": row.specs.region if row else "unknown"}
        if self.job.tab is not None and not self.job.stream:
            headers["x-sparewatt-cost"] = format_usd(self.job.tab.cost(self.record.attempts))
        return headers

    def _close_attempt(self, outcome: Outcome, reason: str | None) -> AttemptRecord:
        record = self.record.attempts[-1]
        record.outcome, record.reason = outcome, reason
        record.ended_ms = self._elapsed_ms()
        record.tokens = self._attempt.tokens if self._attempt else 0
        self._attempt = None
        if self._held is not None:
            self._table.release(self._held)
            self._held = None
        return record

    def _stop_attempt(self, outcome: Outcome, reason: str) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._close_attempt(outcome, reason)

    def _attempts_left(self) -> bool:
        """Three attempts, and two refusals on top: a refusal costs nothing and must not use up a good request."""
        return len(self.record.attempts) - min(self._refusals(), REFUSALS_MAX) < self.job.attempts_max

    def _refusals(self) -> int:
        return sum(a.outcome is Outcome.REFUSED for a in self.record.attempts)

    def _exhausted_error(self) -> SparewattError:
        tries = self.record.attempts
        story = "; ".join(f"{a.node_id[:10]}… {a.reason}" for a in tries)
        message = f"No node could answer after {len(tries)} attempt(s): {story}."
        if all(a.outcome is Outcome.REFUSED for a in tries):
            return NoCapacity(message, retry_after_s=RETRY_AFTER_S)
        if all(a.outcome is Outcome.TIMED_OUT for a in tries):
            return FirstTokenTimeout(message)
        return JobFailed(message)

    def _break_reply(self, reason: str) -> None:
        error = JobFailed(f"The node was lost in the middle of the answer ({reason}). What came before is incomplete.")
        self._sink.data(b"data: " + msgspec.json.encode(error_body(error)) + b"\n\n")
        self._sink.finish()
        self._end(Outcome.FAILED)

    def _run_out_of_time(self) -> None:
        if self._over:
            return
        if self._attempt is not None and self._attempt.complete:
            self._attempt.cancel()
            self.on_done(b"")
            return
        reason = f"the job took longer than {self._rules.job_s:.0f} s"
        self._stop_attempt(Outcome.TIMED_OUT, reason)
        if self._replying:
            self._break_reply(reason)
        else:
            self._fail(FirstTokenTimeout(f"No answer: {reason}."))

    def _fail(self, error: SparewattError) -> None:
        self._sink.fail(error, self._headers())
        self._end(Outcome.FAILED)

    def _end(self, outcome: Outcome) -> None:
        self._over = True
        self._timer.cancel()
        self.record.outcome = outcome
        if self.job.tab is not None:
            self.job.tab.close(outcome, self.record.attempts)
        self._on_over(self)

    def _elapsed_ms(self) -> float:
        return round((self._clock.now_s() - self._began_s) * 1000, 3)


def match_through(
    gate: Gate | None, job: MatchJob, table: NodeTable, at: Situation, *, policy: Policy, seed: int
) -> Decision:
    """The first of the gate's stages that leaves a candidate decides; else the last."""
    if gate is None:
        return match(job, table, at, policy=policy, seed=seed)
    own = gate.own_nodes()
    for allowed in gate.stages():
        seen = at if allowed is None and not own else replace(at, allowed=allowed, own=own)
        decision = match(job, table, seen, policy=policy, seed=seed)
        if decision.ranked:
            break
    return decision


def no_match_error(decision: Decision, table: NodeTable, gate: Gate | None = None) -> SparewattError:
    """Why nobody can have the job: the model's name, the moment, or the request."""
    model = decision.job.model
    reasons = {reason for reason, count in decision.dropped.items() if count} - {Rejection.NO_MODEL}
    if not reasons and decision.barred:
        return unable_error(decision.barred, model) or _barred_error(decision, gate)
    if not reasons:
        return ModelNotFound(model, nearest=nearest_models(model, table.model_ids()))
    if reasons & _MAY_PASS:
        said = ", ".join(sorted(reason.value for reason in reasons & _MAY_PASS))
        return NoCapacity(
            f"No node can take {model!r} right now (stopped by: {said}). Try again in a moment.",
            retry_after_s=RETRY_AFTER_S,
        )
    if Rejection.PROMPT_TOO_LONG in reasons:
        longest = max(row.models[model].context_length or 0 for row in table if model in row.models)
        return ContextTooLong(f"The prompt is longer than the {longest} tokens that {model!r} can hold here.")
    return NoEligibleNode(f"No node that serves {model!r} has the memory for this job.")


def _barred_error(decision: Decision, gate: Gate | None) -> NoEligibleNode:
    """A policy left nobody: which of its fields, and what would help."""
    said = ", ".join(f"{field} ({count})" for field, count in decision.barred.items())
    nearest = gate.relaxations() if gate is not None else []
    hint = f" Nearest: {'; '.join(nearest)}." if nearest else ""
    return NoEligibleNode(f"Every node that serves {decision.job.model!r} is ruled out by: {said}.{hint}")


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"
