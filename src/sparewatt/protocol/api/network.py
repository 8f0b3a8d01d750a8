"""`/v1/network` and `/v1/history`: the network in numbers, now and over time. Public: no node, no account, no job."""

from __future__ import annotations

from typing import Literal

import msgspec

from sparewatt.protocol.api.feed import NetworkTotals, NodeStateName

HistoryKind = Literal["network", "model", "error"]
HistorySpan = Literal["24h", "1h", "30d"]


class RegionNodes(msgspec.Struct, frozen=True, kw_only=True):
    region: str
    nodes: dict[NodeStateName, int]
    """By state; states without nodes are left out."""


class GpuClassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one class of GPU that are not offline."""

    name: str = msgspec.field(name="class")
    nodes: int
    gpus: int
    vram_gb: int
    hourly_usd_median: str


class PriceRange(msgspec.Struct, frozen=True, kw_only=True):
    """In dollars, as decimal strings of three digits: more would identify nodes."""

    low: str
    median: str
    high: str


class NetworkModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, over the nodes that have it and are not offline."""

    id: str
    nodes: int
    warm: int
    """Nodes that have it loaded."""
    measured: int
    """Nodes on which its speed was measured."""
    quantizations: list[str]
    context_length: int | None
    """The longest of all nodes; None if no node reports it."""
    capabilities: list[str]
    """What any of the nodes can do with it; `tools_generic` if none has tools by the model's own template."""
    prompt_usd_per_mtok: PriceRange
    completion_usd_per_mtok: PriceRange


class NetworkOverview(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["network"] = "network"
    at: float
    """Unix seconds."""
    signup: Literal["open", "invite", "closed"]
    billing: bool
    chain: bool
    """Whether it has a chain. Without one there are no leases, and no deposits or payouts on a chain."""
    development: bool
    totals: NetworkTotals
    regions: list[RegionNodes]
    classes: list[GpuClassSummary]
    models: list[NetworkModel]
    """At most 200, those on the most nodes. `/v1/models` lists all."""


class HistoryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in a span of time. For an error only `jobs` is counted: the requests that got it."""

    jobs: int
    failed: int
    cancelled: int
    success_rate: float | None
    """From 0 to 1, of the jobs that were not cancelled; None if there were none."""
    tokens: int | None
    """Rounded to two digits and to steps of 50; None if fewer than five jobs wrote them."""
    tokens_per_s: float | None
    first_token_p50_ms: float | None
    first_token_p95_ms: float | None
    speed_p50_tps: float | None
    """Tokens per second of a single answer."""
    speed_p5_tps: float | None
    up: float | None
    """Availability from 0 to 1: the share of the time with a node online; None if nothing was observed."""
    nodes: int
    """The most at a time, as with `gpus` and `vram_gb`."""
    gpus: int
    vram_gb: int


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """`HistoryFigures` of one step. No subclass: its own fields would come last in the JSON and in the CSV."""

    at: int
    """When the step began, in Unix seconds."""
    name: str
    """The model, or the code of the error; empty for the network."""
    jobs: int
    failed: int
    cancelled: int
    success_rate: float | None
    tokens: int | None
    tokens_per_s: float | None
    first_token_p50_ms: float | None
    first_token_p95_ms: float | None
    speed_p50_tps: float | None
    speed_p5_tps: float | None
    up: float | None
    nodes: int
    gpus: int
    vram_gb: int


class NetworkHistory(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[HistoryPoint]
    """In order of time."""
    kind: HistoryKind
    span: HistorySpan
    step_s: int
    """How much time each point covers."""
    totals: dict[str, HistoryFigures]
    """Over the whole span, by name."""
