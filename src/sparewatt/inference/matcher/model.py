"""What a match takes and what it returns: the job, its context, and the decision with a reason for every node."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns, Positions, Standing
from sparewatt.inference.matcher.formula import NO_PREFERENCE, Preference
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.protocol.link.node_report import ModelReport

CANDIDATES_KEPT = 8
"""Ranked candidates that an explanation keeps, and that the cascade may use."""

REJECTIONS_KEPT = 64
"""Rejected nodes that an explanation names; the funnel counts them all."""


class MatchJob(msgspec.Struct, frozen=True, gc=False):
    """A job as the matcher sees it: sizes and preferences, never content."""

    id: MatchId
    model: ModelId
    prompt_tokens: int
    output_tokens: int
    prompt_tokens_floor: int = 0
    """The least that the prompt can hold: a wrong estimate must not turn a good request away."""
    preference: Preference = NO_PREFERENCE

    def vram_needed_bytes(self, model: ModelReport) -> int:
        """Weights and KV cache for the job's whole context (NeuralGrid's minVram)."""
        return model.weights_bytes + model.kv_bytes_per_token * (self.prompt_tokens + self.output_tokens)


class PositionList(NamedTuple):
    """Positions of some nodes, in ascending order, valid while the columns' `membership_version` stands."""

    columns: NodeColumns
    membership_version: int
    positions: Positions


class AllowedNodes(NamedTuple):
    """The nodes that a policy leaves, and how many each of its fields ruled out."""

    nodes: frozenset[NodeId] = frozenset()
    rejected_by_field: Mapping[str, int] = {}
    positions: PositionList | None = None
    """Of these nodes, if they were looked up beforehand."""


class MatchContext(msgspec.Struct, frozen=True):
    """What a match takes besides the job and the table."""

    now_s: float
    rules: HealthRules
    tried: Collection[NodeId] = frozenset()
    allowed: AllowedNodes | None = None
    """The nodes that the job's policy leaves; None without a policy."""
    payer_nodes: Collection[NodeId] = frozenset()
    """The payer's own nodes, if they must not earn what the network pays."""
    prefix_tokens: Mapping[NodeId, int] | None = None
    """How many tokens of the prompt's beginning each node is believed to have cached."""
    standing: Standing = Standing.WAITING
    """The least that a node must have."""

    def restricted_to(self, allowed: AllowedNodes | None, payer_nodes: Collection[NodeId]) -> MatchContext:
        return msgspec.structs.replace(self, allowed=allowed, payer_nodes=payer_nodes)


class Rejection(enum.Enum):
    """Why a node cannot have a job. The value is the filter's name in the funnel, in the order of the filters."""

    NO_MODEL = "model"
    OFFLINE = "online"
    DRAINING = "accepting"
    PROMPT_TOO_LONG = "context"
    TOO_LITTLE_VRAM = "vram"
    NOT_MEASURED = "measured"
    FULL = "capacity"
    NOT_TIMED = "timed"
    SUSPENDED = "checked"
    ALREADY_TRIED = "not_tried"
    NOT_SHORTLISTED = "shortlist"


SCAN_REJECTIONS = (
    Rejection.OFFLINE,
    Rejection.DRAINING,
    Rejection.PROMPT_TOO_LONG,
    Rejection.TOO_LITTLE_VRAM,
    Rejection.NOT_MEASURED,
    Rejection.FULL,
    Rejection.NOT_TIMED,
    Rejection.SUSPENDED,
    Rejection.ALREADY_TRIED,
)
"""What a scan can reject a node for; it gives the index in this tuple."""
REJECTED_FIELDS = (
    ColumnField.CONTEXT_TOKENS,
    ColumnField.WEIGHTS_BYTES,
    ColumnField.KV_BYTES_PER_TOKEN,
    ColumnField.VRAM_BYTES,
    ColumnField.JOBS,
    ColumnField.JOBS_MAX,
)
"""The numbers that say how far a rejected node was from being eligible."""
REJECTED_WIDTH = 2 + len(REJECTED_FIELDS)
_DOUBLE_BYTES = 8
HALF_A_STEP = 5e-7
"""Prices per million tokens come in millionths of a nano: rounding down must not slip below a whole one."""


class Candidate(NamedTuple):
    """An eligible node and its cost, part by part, in the ranking's unit."""

    node_id: NodeId
    cost: float
    parts: tuple[float, ...]
    predicted_ttft_s: float
    predicted_finish_s: float
    price_nano: int
    cached_tokens: int = 0
    """Tokens of the prompt that the node is believed to have cached (see `affinity`)."""


@dataclass(frozen=True, slots=True)
class RejectedNode:
    node_id: NodeId
    reason: Rejection
    needed: float = 0.0
    had: float = 0.0


class Decision(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Everything about one match, as numbers; `explain` makes sentences of it on request.

    Every request makes one, and most are never read beyond their best candidate: so candidates and rejections stay
    packed doubles until they are read. It is part of no reference cycle, so the garbage collector ignores it.
    """

    job: MatchJob
    ranking: str
    total: int
    ranked_count: int = 0
    ranked_rows: bytes = b""
    """A row of doubles per candidate, best first: position, `formula.SUMMARY`, parts, jitter."""
    node_ids: tuple[NodeId, ...] = ()
    """The node at each position."""
    rejected_rows: bytes = b""
    """A row for some of the rejected nodes: position, index of the reason, REJECTED_FIELDS."""
    rejected_counts: Sequence[int] = ()
    """How many nodes that have the model were rejected, by SCAN_REJECTIONS; empty if none was."""
    not_shortlisted: int = 0
    without_model: int = 0
    rejected_by_policy: Mapping[str, int] = {}
    """Nodes that the job's policy ruled out before the scan, by field."""
    cached_tokens: Mapping[NodeId, int] = {}
    """Tokens of the prompt that nodes have cached, where it counted."""
    is_turn: bool = False
    """Whether the first candidate leads because it is its turn to be timed, whatever it costs."""

    @property
    def best(self) -> Candidate | None:
        if not self.ranked_count:
            return None
        numbers = memoryview(self.ranked_rows).cast("d")
        return self._candidate([*numbers[: len(numbers) // self.ranked_count]])

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """The best nodes in order."""
        return tuple(self._candidate(row) for row in _rows(self.ranked_rows, self.ranked_count))

    @property
    def rejected(self) -> tuple[RejectedNode, ...]:
        """Some of the nodes that have the model and cannot have the job."""
        count = len(self.rejected_rows) // (REJECTED_WIDTH * _DOUBLE_BYTES)
        return tuple(self._rejected(row) for row in _rows(self.rejected_rows, count))

    @property
    def rejected_by_reason(self) -> dict[Rejection, int]:
        """How many nodes cannot have the job, by the first reason."""
        found = {reason: n for reason, n in zip(SCAN_REJECTIONS, self.rejected_counts, strict=False) if n}
        if self.not_shortlisted:
            found[Rejection.NOT_SHORTLISTED] = self.not_shortlisted
        if self.without_model:
            found[Rejection.NO_MODEL] = self.without_model
        return found

    @property
    def eligible_count(self) -> int:
        out = sum(self.rejected_counts) + self.not_shortlisted + self.without_model
        return self.total - out - (sum(self.rejected_by_policy.values()) if self.rejected_by_policy else 0)

    def led_by(self, node_id: NodeId) -> Decision:
        """The same decision with this candidate first, whatever it costs."""
        width = len(self.ranked_rows) // self.ranked_count
        rows = [self.ranked_rows[at : at + width] for at in range(0, len(self.ranked_rows), width)]
        rows.sort(key=lambda row: self.node_ids[int(memoryview(row).cast("d")[0])] != node_id)
        return msgspec.structs.replace(self, ranked_rows=b"".join(rows), is_turn=True)

    def __eq__(self, other: object) -> bool:
        """The same outcome; positions do not matter."""
        return isinstance(other, Decision) and self._outcome() == other._outcome()

    __hash__ = None  # type: ignore[assignment]

    def _outcome(self) -> tuple[object, ...]:
        rejected = self.rejected, self.rejected_by_reason, self.rejected_by_policy
        return self.job, self.ranking, self.total, self.ranked, rejected

    def _candidate(self, row: list[float]) -> Candidate:
        position, cost, first_token_s, finish_s, usd, *parts = row
        node_id, price_nano = self.node_ids[int(position)], int(usd * NANO_PER_USD + HALF_A_STEP)
        cached_tokens = self.cached_tokens.get(node_id, 0) if self.cached_tokens else 0
        return Candidate(node_id, cost, tuple(parts), first_token_s, finish_s, price_nano, cached_tokens)

    def _rejected(self, row: list[float]) -> RejectedNode:
        position, number, context_tokens, weights, kv_token, vram, jobs, jobs_max = row
        reason, job = SCAN_REJECTIONS[int(number)], self.job
        match reason:
            case Rejection.PROMPT_TOO_LONG:
                needed, had = float(job.prompt_tokens_floor), context_tokens
            case Rejection.TOO_LITTLE_VRAM:
                needed, had = weights + kv_token * (job.prompt_tokens + job.output_tokens), vram
            case Rejection.FULL:
                needed, had = jobs + 1, jobs_max
            case _:
                needed = had = 0.0
        return RejectedNode(self.node_ids[int(position)], reason, needed=needed, had=had)


def _rows(packed: bytes, count: int) -> list[list[float]]:
    numbers: list[float] = [*memoryview(packed).cast("d")]
    width = len(numbers) // max(1, count)
    return [numbers[at * width : (at + 1) * width] for at in range(count)]
