"""What the matcher looks at and what it decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId, MatchId, ModelId, NodeId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.matcher.columns import ColumnField, NodeColumns
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.match_query import Positions
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs

WEIGHT_MAX = 1000.0
"""A part that counts a thousand times decides alone; more would only drown the rounding."""


class Rejection(enum.Enum):
    """Why a node cannot have a job. The value is the filter's name in the funnel; the order is the filters' order."""

    NO_MODEL = "model"
    OFFLINE = "online"
    DRAINING = "accepting"
    PROMPT_TOO_LONG = "context"
    TOO_LITTLE_VRAM = "vram"
    NOT_MEASURED = "measured"
    FULL = "capacity"
    ALREADY_TRIED = "not_tried"
    NOT_SHORTLISTED = "shortlist"


REASONS = (
    Rejection.OFFLINE,
    Rejection.DRAINING,
    Rejection.PROMPT_TOO_LONG,
    Rejection.TOO_LITTLE_VRAM,
    Rejection.NOT_MEASURED,
    Rejection.FULL,
    Rejection.ALREADY_TRIED,
)
"""Why a node that was looked at cannot have a job: a scan says which by its number here."""
TOLD_OF_STOPPED = (
    ColumnField.CONTEXT_TOKENS,
    ColumnField.WEIGHTS_BYTES,
    ColumnField.KV_BYTES_PER_TOKEN,
    ColumnField.VRAM_BYTES,
    ColumnField.JOBS,
    ColumnField.ROOM_JOBS,
)
"""The numbers that say how far such a node was from having it."""
_STOPPED_BYTES = 8 * (2 + len(TOLD_OF_STOPPED))
HALF_A_STEP = 5e-7
"""Prices per million tokens come in millionths of a nano: rounding down must not slip below a whole one."""


class NodeState(enum.Enum):
    """How a node looks from here."""

    ONLINE = "online"
    BUSY = "busy"
    SUSPECT = "suspect"
    OFFLINE = "offline"
    DRAINING = "draining"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When silence means trouble. NeuralGrid's values are 30 s, 3 and 3."""

    heartbeat_s: float = 5.0
    suspect_after_missed: int = 2
    offline_after_missed: int = 3
    grace_s: float = 0.5

    @property
    def suspect_after_s(self) -> float:
        return self.heartbeat_s * self.suspect_after_missed + self.grace_s

    @property
    def offline_after_s(self) -> float:
        return self.heartbeat_s * self.offline_after_missed + self.grace_s


Sort = Literal["price", "throughput", "latency"]


@dataclass(frozen=True, slots=True)
class Preference:
    """What one request wants more, or less, than its tier. Raises InvalidField."""

    sort: Sort | None = None
    """By price (as `economy`), by tokens per second or by the first token (both as `fast`, with more weight)."""
    weights: tuple[tuple[str, float], ...] = ()
    """What single parts of the cost count for, by name; 1 is as usual, 0 not at all."""

    def __post_init__(self) -> None:
        if self.sort is not None and self.sort not in get_args(Sort):
            raise InvalidField(f"'sort' is one of {', '.join(get_args(Sort))}.", param="sort")
        for name, weight in self.weights:
            if name not in PARTS:
                raise InvalidField(f"There is no cost {name[:40]!r}. Costs: {', '.join(PARTS)}.", param="weights")
            if not 0.0 <= weight <= WEIGHT_MAX:
                raise InvalidField(f"The weight of {name!r} is a number from 0 to {WEIGHT_MAX:.0f}.", param="weights")


AS_USUAL = Preference()


class MatchJob(msgspec.Struct, frozen=True, gc=False):
    """A job as the matcher sees it: sizes and wishes, never content."""

    id: MatchId
    model: ModelId
    prompt_tokens: int
    output_tokens: int
    prompt_tokens_floor: int = 0
    """What the prompt holds at the very least: a wrong estimate must not turn a good request away."""
    preference: Preference = AS_USUAL


class ModelFigures(NamedTuple):
    """What a model does on a node that does nothing else, as measured."""

    is_measured: bool
    weights_bytes: float
    room_jobs: int
    """What the node may run and queue by its slots."""
    read_fixed_s: float
    read_token_s: float
    step_s: float
    per_job_s: float
    bandwidth: float
    token_s: float
    """What one token of context adds to a step."""


@dataclass(slots=True)
class ColumnPosition:
    """Where one of a node's models stands in that model's entries."""

    model: str
    entries: NodeColumns
    place: int
    figures: ModelFigures


@dataclass(slots=True)
class NodeRow:
    """One node as this gateway sees it. Written by the table only."""

    id: NodeId
    specs: NodeSpecs
    owner: AccountId | None = None
    index: int = 0
    hash: int = 0
    models: dict[str, ModelReport] = field(default_factory=dict)
    seats: dict[str, ColumnPosition] = field(default_factory=dict)
    """By model."""
    load: NodeLoad = field(default_factory=NodeLoad)
    connected: bool = False
    last_heard_s: float = 0.0
    last_seen_unix_s: float | None = None
    rtt_s: float = 0.0
    suspect_until_s: float = 0.0
    own_jobs: int = 0
    own_since_report: int = 0
    own_backlog_s: float = 0.0
    """Prompts dispatched from here whose first token has not come yet, in seconds of reading."""
    own_kv_bytes: float = 0.0
    own_active: dict[str, int] = field(default_factory=dict)
    """Jobs dispatched from here, by model."""
    jobs_done: int = 0
    jobs_failed: int = 0
    slowness: float = 0.0
    """Learned: the log of how much slower the node is than it was measured; below zero it does not count."""
    strain_max: float = 0.0
    pace: float = 1.0
    active_bytes: int = 0
    """These two follow from what is above; kept, because every report needs them."""

    @property
    def jobs_there(self) -> int:
        """Work on the node now: what we sent (exact, counted at pick time) and what others did (as last reported)."""
        return self.own_jobs + self.load.foreign


class Candidate(NamedTuple):
    """An eligible node and what it would cost, part by part, in the policy's own unit."""

    node_id: NodeId
    cost: float
    parts: tuple[float, ...]
    predicted_ttft_s: float
    predicted_finish_s: float
    price_nano: int
    cached_tokens: int = 0
    """Of the prompt, what the node is believed to hold already (see `affinity`)."""


@dataclass(frozen=True, slots=True)
class RejectedNode:
    node_id: NodeId
    reason: Rejection
    needed: float = 0.0
    had: float = 0.0


class PositionList(NamedTuple):
    """Where some nodes stand in their model's entries, as long as nobody there came or went."""

    entries: NodeColumns
    changes: int
    places: Positions
    """In ascending order."""


class AllowedNodes(NamedTuple):
    """The nodes that a policy leaves, and how many each of its fields ruled out."""

    nodes: frozenset[NodeId] = frozenset()
    dropped: Mapping[str, int] = {}
    seating: PositionList | None = None
    """Of the nodes, where that was worked out beforehand."""


class Decision(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Everything about one match, as numbers. Sentences are made from it when somebody asks.

    There is one for every request, and most are never looked at beyond their best candidate: so candidates and
    rejections are lines of numbers until somebody wants them. It points at nothing that points back, and the garbage
    collector need not know of it.
    """

    job: MatchJob
    ranking: str
    total: int
    found: int = 0
    """How many candidates are told of."""
    told: bytes = b""
    """A line of numbers for each, best first: its place, `formula.SUMMARY`, the parts, and the jitter."""
    seated: tuple[NodeId, ...] = ()
    """Who had which place."""
    stopped: bytes = b""
    """A line for some that cannot have the job: place, number of the reason, and TOLD_OF_STOPPED."""
    counts: Sequence[int] = ()
    """How many of those that have the model each of REASONS stopped, in order; nothing if nobody was."""
    unlisted: int = 0
    without_model: int = 0
    barred: Mapping[str, int] = {}
    """Nodes that the job's policy ruled out beforehand, by field."""
    cached: Mapping[NodeId, int] = {}
    """What nodes hold of the prompt, where that counted."""

    @property
    def best(self) -> Candidate | None:
        if not self.found:
            return None
        numbers = memoryview(self.told).cast("d")
        return self._candidate([*numbers[: len(numbers) // self.found]])

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """The best nodes in order."""
        return tuple(self._candidate(line) for line in _lines(self.told, self.found))

    @property
    def rejected(self) -> tuple[RejectedNode, ...]:
        """Some of those that have the model and cannot have the job."""
        return tuple(self._rejected(line) for line in _lines(self.stopped, len(self.stopped) // _STOPPED_BYTES))

    @property
    def dropped(self) -> dict[Rejection, int]:
        """How many nodes cannot have it, by the first reason."""
        found = {reason: count for reason, count in zip(REASONS, self.counts, strict=False) if count}
        if self.unlisted:
            found[Rejection.NOT_SHORTLISTED] = self.unlisted
        if self.without_model:
            found[Rejection.NO_MODEL] = self.without_model
        return found

    @property
    def eligible(self) -> int:
        """Nodes that could have had the job."""
        out = sum(self.counts) + self.unlisted + self.without_model
        return self.total - out - (sum(self.barred.values()) if self.barred else 0)

    def __eq__(self, other: object) -> bool:
        """Who has which place does not matter."""
        return isinstance(other, Decision) and self._said() == other._said()

    __hash__ = None  # type: ignore[assignment]

    def _said(self) -> tuple[object, ...]:
        return self.job, self.ranking, self.total, self.ranked, self.rejected, self.dropped, self.barred

    def _candidate(self, line: list[float]) -> Candidate:
        place, cost, first_token_s, finish_s, usd, *parts = line
        node_id, price_nano = self.seated[int(place)], int(usd * NANO_PER_USD + HALF_A_STEP)
        cached_tokens = self.cached.get(node_id, 0) if self.cached else 0
        return Candidate(node_id, cost, tuple(parts), first_token_s, finish_s, price_nano, cached_tokens)

    def _rejected(self, line: list[float]) -> RejectedNode:
        place, number, context_tokens, weights, kv_token, vram, jobs, room = line
        reason, job = REASONS[int(number)], self.job
        match reason:
            case Rejection.PROMPT_TOO_LONG:
                needed, had = float(job.prompt_tokens_floor), context_tokens
            case Rejection.TOO_LITTLE_VRAM:
                needed, had = weights + kv_token * (job.prompt_tokens + job.output_tokens), vram
            case Rejection.FULL:
                needed, had = jobs + 1, room
            case _:
                needed = had = 0.0
        return RejectedNode(self.seated[int(place)], reason, needed=needed, had=had)


def _lines(told: bytes, count: int) -> list[list[float]]:
    numbers: list[float] = [*memoryview(told).cast("d")]
    width = len(numbers) // max(1, count)
    return [numbers[at * width : (at + 1) * width] for at in range(count)]
