"""What the matcher looks at and what it decides."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import AccountId, MatchId, ModelId, NodeId
from sparewatt.inference.matcher.entries import Entries
from sparewatt.inference.matcher.formula import PARTS
from sparewatt.inference.matcher.question import Places
from sparewatt.protocol.node import ModelReport, NodeLoad, NodeSpecs

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


class MatchJob(msgspec.Struct, frozen=True):
    """A job as the matcher sees it: sizes and wishes, never content."""

    id: MatchId
    model: ModelId
    prompt_tokens: int
    output_tokens: int
    prompt_tokens_floor: int = 0
    """What the prompt holds at the very least: a wrong estimate must not turn a good request away."""
    preference: Preference = AS_USUAL


class Figures(NamedTuple):
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
class Seat:
    """Where one of a node's models stands in that model's entries."""

    model: str
    entries: Entries
    place: int
    figures: Figures


@dataclass(slots=True)
class NodeRow:
    """One node as this gateway sees it. Written by the table only."""

    id: NodeId
    specs: NodeSpecs
    owner: AccountId | None = None
    index: int = 0
    hash: int = 0
    models: dict[str, ModelReport] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
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
    is_unwritten: bool = False
    """Whether the entries still have older numbers of it (see `unwritten`)."""

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
class Rejected:
    node_id: NodeId
    reason: Rejection
    needed: float = 0.0
    had: float = 0.0


class Seating(NamedTuple):
    """Where some nodes stand in their model's entries, as long as nobody there came or went."""

    entries: Entries
    changes: int
    places: Places
    """In ascending order."""


class Allowed(NamedTuple):
    """The nodes that a policy leaves, and how many each of its fields ruled out."""

    nodes: frozenset[NodeId] = frozenset()
    dropped: Mapping[str, int] = {}
    seating: Seating | None = None
    """Of the nodes, where that was worked out beforehand."""


class Decision(msgspec.Struct, frozen=True):
    """Everything about one match, as numbers. Sentences are made from it when somebody asks."""

    job: MatchJob
    policy: str
    total: int
    ranked: Sequence[Candidate]
    rejected: Sequence[Rejected]
    """Some of those that have the model and cannot have the job."""
    dropped: dict[Rejection, int]
    barred: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Nodes that the job's policy ruled out beforehand, by field."""

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0] if self.ranked else None
