"""Which answers are checked: one draw per job, on its path. What is to be checked waits in a bounded queue."""

from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.clock import Clock
from sparewatt.core.ids import ModelId, NodeId
from sparewatt.core.rng import Rng
from sparewatt.inference.checks.answers import ReadAnswer, check_form, is_repeatable, read_body
from sparewatt.inference.checks.check_jobs import CheckRequest
from sparewatt.inference.checks.records import CheckRecords
from sparewatt.inference.checks.witnesses import NodeFilter
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.model import AttemptRecord, Job
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.gpu_figures import memory_bandwidth_of
from sparewatt.store.check_counts import CheckCount
from sparewatt.trust.checks.comparison import pieces_of
from sparewatt.trust.checks.frequency import CheckHistory, check_share, speed_excess
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.standing import CheckRecord

PLANNED_MAX = 256
"""Checks that wait; when there are more, the oldest are dropped."""
DELAY_S = 3.0
"""A probe follows the job that it is for after up to so long, so that it does not give itself away."""
LIMITS_KEPT = 64
"""Limits on answers that clients of a model have set lately."""
SCHEMA_SHARE = 0.05
"""Of answers with tool calls or a schema, whose form is looked at."""


class PlannedCheck(NamedTuple):
    node_id: NodeId
    model: ModelId
    due_s: float
    request: CheckRequest | None = None
    """A customer's, to be run again; None for a prompt of the network's own."""
    pieces: tuple[str, ...] = ()
    """The node's answer to it."""
    allowed: NodeFilter | None = None


@dataclass(slots=True, kw_only=True)
class AnswerSampler:
    """Implements dispatch's AnswerObserver."""

    records: CheckRecords
    table: NodeTable
    clock: Clock
    rng: Rng
    totals: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Results in this process, by kind and result."""
    planned: deque[PlannedCheck] = field(default_factory=lambda: deque(maxlen=PLANNED_MAX), init=False)
    limits: dict[ModelId, deque[int]] = field(default_factory=dict, init=False)
    unchecked_jobs: dict[NodeId, int] = field(default_factory=dict, init=False)
    """Customers' jobs of each node since its last check."""
    _shares: dict[NodeId, float] = field(default_factory=dict, init=False)
    _unstored: dict[tuple[NodeId, dt.date, CheckKind], list[float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.records.subscribe(self._on_record)

    def on_answer(self, job: Job, record: AttemptRecord, attempt: Attempt, data: bytes) -> None:
        """A whole answer of one node has come. `data`: all of a reply that is not streamed."""
        if job.is_check:
            return
        node_id, limit = record.node_id, job.call.output_limit
        if limit is not None:
            self._note_limit(job.match.model, limit)
        if len(job.call.needs) > 1 and self.rng.random() < SCHEMA_SHARE:
            self._check_form(job, node_id, data)
        self.unchecked_jobs[node_id] = self.unchecked_jobs.get(node_id, 0) + 1
        if self.rng.random() < self.share_of(node_id):
            self._plan(job, node_id, attempt, data)

    def _plan(self, job: Job, node_id: NodeId, attempt: Attempt, data: bytes) -> None:
        now_s, model = self.clock.now_s(), job.match.model
        if job.may_check and is_repeatable(job.call, job.body):
            text = attempt.answer_text() if job.call.stream else _text_of(read_body(data))
            if text is not None:
                request, pieces = CheckRequest.of_job(job), pieces_of(text)
                self.planned.append(PlannedCheck(node_id, model, now_s, request, pieces, job.gate))
                return
        self.plan_probe(node_id, model)

    def _note_limit(self, model: ModelId, limit: int) -> None:
        limits = self.limits.get(model)
        if limits is None:
            limits = self.limits[model] = deque(maxlen=LIMITS_KEPT)
        limits.append(limit)

    def _check_form(self, job: Job, node_id: NodeId, data: bytes) -> None:
        answer = read_body(data) if not job.call.stream else None
        result = check_form(job, answer) if answer is not None else CheckResult.UNDECIDED
        self.count(node_id, "schema", result)

    def _on_record(self, node_id: NodeId, record: CheckRecord) -> None:
        self._shares.pop(node_id, None)
        self.table.set_suspended(node_id, is_suspended=record.is_suspended)

    def share_of(self, node_id: NodeId) -> float:
        """Of the node's next jobs, how many are checked."""
        share = self._shares.get(node_id)
        if share is None:
            share = self._shares[node_id] = self._share_of(node_id)
        return share

    def _share_of(self, node_id: NodeId) -> float:
        row, record = self.table.get(node_id), self.records.of(node_id)
        if row is None or self.records.is_own(row.owner):
            return 0.0  # nobody doubts the operator's word but the operator
        return check_share(CheckHistory(record.passed, record.is_suspended, _excess_of(row)))

    def plan_probe(self, node_id: NodeId, model: ModelId) -> None:
        """Within a few seconds."""
        self.planned.append(PlannedCheck(node_id, model, self.clock.now_s() + DELAY_S * self.rng.random()))

    def forget_shares(self) -> None:
        """How fast nodes are may have changed."""
        self._shares.clear()

    # counts

    def count(self, node_id: NodeId, kind: CheckKind, result: CheckResult) -> None:
        if result is CheckResult.UNDECIDED:
            return
        unix_s = self.clock.unix_s()
        self.totals[kind, result.value] += 1
        key = node_id, dt.datetime.fromtimestamp(unix_s, dt.UTC).date(), kind
        counts = self._unstored.setdefault(key, [0, 0, 0.0])
        counts[result is CheckResult.FAILED] += 1
        counts[2] = unix_s

    def take_counts(self) -> list[CheckCount]:
        """What is not stored yet."""
        taken, self._unstored = self._unstored, {}
        return [CheckCount(*key, int(passed), int(failed), at) for key, (passed, failed, at) in taken.items()]

    def give_back(self, counts: list[CheckCount]) -> None:
        """They could not be stored."""
        for each in counts:
            now = self._unstored.setdefault((each.node_id, each.day, each.kind), [0, 0, 0.0])
            now[0] += each.passed
            now[1] += each.failed
            now[2] = max(now[2], each.last_unix_s)


def _text_of(answer: ReadAnswer | None) -> str | None:
    return None if answer is None or answer.calls else answer.text


def _excess_of(row: NodeRow) -> float:
    """Of its models, the one that is written fastest for what the data sheet of the card allows."""
    bandwidth = memory_bandwidth_of(row.specs.gpu)
    if bandwidth is None:
        return 1.0
    all_cards = bandwidth * max(1, row.specs.gpu_count)
    found = (
        speed_excess(decode_tps=1 / position.timing().step_s, weights_bytes=weights, bandwidth_bytes_s=all_cards)
        for model, position in row.positions.items()
        if position.is_timed and (weights := row.models[model].weights_bytes)
    )
    return max(found, default=1.0)
