"""`/v1/nodes`: the machines of the network. What a node claims and what was measured are separate fields."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.api.feed import NodeStateName, OutcomeName
from sparewatt.protocol.link.node_report import Capability, ModelState

MatcherFilterName = Literal[
    "model",
    "online",
    "accepting",
    "context",
    "vram",
    "measured",
    "capacity",
    "timed",
    "checked",
    "not_tried",
    "shortlist",
]
"""The matcher's filters. Each is named by what a rejected node lacks."""
FailureCauseName = Literal[
    "link_lost",
    "timed_out",
    "backend_unreachable",
    "backend_broke",
    "backend_timeout",
    "backend_error",
    "protocol",
    "overclaimed",
]


class NodeClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What the node reports of itself and no gateway has verified."""

    vram_bytes: int
    """Of all GPUs together."""
    tflops: float
    hourly_usd: str | None
    """The owner's price per hour in dollars, as a decimal string; None if the owner sets prices per token only."""


class NodeMeasures(msgspec.Struct, frozen=True, kw_only=True):
    tflops: float | None


class GpuMeasures(msgspec.Struct, frozen=True, kw_only=True):
    copy_bytes_s: float | None
    """Bytes per second of a copy in the GPU's own memory, reading and writing counted."""
    fp16_tflops: float | None
    """Of a dense matrix product at 16 bits."""


class NodeGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, as its driver describes it."""

    model: str
    vendor: str
    driver: str | None
    vram_bytes: int
    measured: GpuMeasures


class ModelSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a model runs on a node: a curve for prompts, one for decoding steps. What was not measured is not there.

    A prompt of T tokens, alone: `ttft_s + T / prefill_tps + T² * prefill_square_s`. A decoding step with n answers:
    `1 / decode_tps + (n - 1) * step_per_job_s`, and `step_per_token_s` for each token in the contexts of all of them.
    """

    first_token_s: float
    """Until the first token after a prompt of 1,000 tokens, on an idle node."""
    ttft_s: float
    """What every prompt costs before its length counts."""
    prefill_tps: float
    """Prompt tokens read per second, without that."""
    prefill_square_s: float
    decode_tps: float
    """Tokens written per second, one answer alone."""
    step_per_job_s: float | UnsetType = UNSET
    step_per_token_s: float | UnsetType = UNSET
    prefill_pace: float | UnsetType = UNSET
    """How fast a prompt is read beside answers, as a share of its speed alone."""
    decode_pace: float | UnsetType = UNSET
    """How fast answers go on while a prompt is read, as a share of their speed otherwise."""
    batch: int | UnsetType = UNSET
    """How many answers were written at once when the next was measured."""
    batch_decode_tps: float | UnsetType = UNSET
    """Tokens per second of all of them together."""


class ModelPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars per million tokens, as decimal strings, each with a sentence that says how it was derived."""

    prompt_usd_per_mtok: str
    completion_usd_per_mtok: str
    prompt_derivation: str
    completion_derivation: str
    notice: str | None = None
    """If it is above what requests without a `max_price` pay: a sentence that says so, and what they pay."""


class NodeModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one node."""

    id: str
    """The network's name of it."""
    served_as: str | None = None
    """What the node's server calls it, if that is something else."""
    state: ModelState
    context_length: int | None
    """In tokens."""
    quantization: str | None
    weights_digest: str | None
    """Of the file of weights: `sha256:…`."""
    capabilities: tuple[Capability, ...] | None
    """None if the node does not report them."""
    claimed: ModelSpeed | None
    measured: ModelSpeed | None
    price: ModelPrice


class GpuSensors(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU now. A value that its driver does not report is None."""

    vram_free_bytes: int | None
    power_watts: float | None
    temperature_c: float | None
    utilisation: float | None
    """From 0 to 1."""


class NodeSensors(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine measured of itself, as of its last heartbeat."""

    power_watts: float | None
    """Of its GPUs, and of its processor where that can be read."""
    gpus: list[GpuSensors]
    """In the order of `Node.gpus`."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """Its address, `0x` and 40 hexadecimal digits."""
    handle: str
    """Its name in the public feed, which does not reveal the address."""
    name: str
    region: str
    state: NodeStateName
    gpu: str
    gpu_count: int
    agent_version: str
    backend: str
    claimed: NodeClaims
    measured: NodeMeasures
    gpus: list[NodeGpu]
    """One by one, where the driver reports them."""
    paused: str | None
    """Why its owner's rules keep it from new jobs for a while; None if they do not."""
    kv_used: float | None
    """Share of the memory for contexts (KV cache) in use, from 0 to 1, where the model server reports it."""
    models: list[NodeModel]
    running: int
    """Jobs running there, from all gateways and the owner, as the node last reported."""
    queued: int
    slots: int
    """How many jobs it runs at once."""
    rtt_ms: float
    """Round trip between this gateway and the node."""
    in_flight: int
    """Jobs that this gateway has running there."""
    jobs_done: int
    """By this gateway's jobs, since it started."""
    jobs_failed: int
    last_seen_at: float | None
    """Unix seconds; None if it was never seen."""
    yours: bool
    """Whether it belongs to the caller's account."""
    sensors: NodeSensors | None
    """For its owner and for operators. None for other callers, for an offline node, and for one without sensors."""


class PolicyFilterStep(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a policy, in the order of application."""

    filter: str
    """The policy's field."""
    dropped: int
    left: int


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of all nodes; with a query, of those that its policy allows. Only then the fields after `next` are there.

    A page has up to 200 nodes, and fewer where these have very many models.
    """

    object: Literal["list"] = "list"
    data: list[Node]
    next: str | None = None
    """`after` of the next page; None on the last one."""
    policy: dict[str, Any] | UnsetType = UNSET
    """The query as a policy object."""
    total: int | UnsetType = UNSET
    """How many nodes there are without the query."""
    allowed: int | UnsetType = UNSET
    """How many nodes the policy allows, on all pages."""
    funnel: list[PolicyFilterStep] | UnsetType = UNSET
    nearest_relaxations: list[str] | UnsetType = UNSET
    """If no node is left: the smallest changes of the policy that would allow some, as sentences."""


class MatchLosses(msgspec.Struct, frozen=True, kw_only=True):
    """Matches in which the node could have had the job and another node had a lower cost."""

    count: int
    mean_gap_s: float | None
    """How much higher its cost was on average; None if no match was ranked by time."""
    worst_parts_s: dict[str, float]
    """The parts of the cost with the largest average gap, the worst first."""


class ModelDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A model that clients asked for and no node had."""

    model: str
    requests: int
    keys: int
    """How many API keys asked for it."""


class NodeMatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of recent matches for one node."""

    node: str
    name: str
    matches: int
    """How many were examined."""
    chosen: int
    """Of these, how many sent the node their job."""
    outcomes: dict[OutcomeName, int]
    """The chosen ones by how the node's last attempt ended, the most frequent first."""
    lost: MatchLosses
    rejected: dict[MatcherFilterName, int]
    """Matches in which a filter of the matcher rejected the node, the most frequent first."""
    ruled_out: int
    """Matches whose policy or payer allowed other nodes only."""
    unlisted: int
    """Matches of which no reason was stored: the node has the model, and is in neither of the stored lists."""
    overclaimed: int = 0
    """Answers of which the node claimed far more tokens than their text takes."""
    wanted: list[ModelDemand] = []
    """Models that were asked for in the last day while no node had them, the most wanted first."""
    sentences: list[str]
    """The same as text for people."""


class CalendarDay(msgspec.Struct, frozen=True, kw_only=True):
    """One day (UTC) of a node. The fields after `up` are for its owner and for operators only."""

    day: str
    """`2026-01-31`."""
    up: float | None
    """Share of the observed time in which the node was up, from 0 to 1; None if no gateway observed it."""
    up_s: int | UnsetType = UNSET
    known_s: int | UnsetType = UNSET
    """The observed time."""
    jobs: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET


class UptimeCalendar(msgspec.Struct, frozen=True, kw_only=True):
    """The last year of a node; days without any record are left out."""

    object: Literal["list"] = "list"
    data: list[CalendarDay]
    """In order of time."""
    node: str
    name: str


class NodeFailureCount(msgspec.Struct, frozen=True, kw_only=True):
    cause: FailureCauseName
    count: int
    last_unix_s: int
    """When it happened last."""


class NodeReputation(msgspec.Struct, frozen=True, kw_only=True):
    """The fields after `half_life_days` are for the node's owner and for operators only."""

    node: str
    name: str
    score: float
    """The expected share of jobs that the node finishes, from 0 to 1. Rounded to one decimal for other callers."""
    lower: float
    """Its lower bound at 95 % confidence."""
    half_life_days: float
    """After so many days a job counts half as much."""
    jobs: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    causes: list[NodeFailureCount] | UnsetType = UNSET
    """The most frequent first."""
