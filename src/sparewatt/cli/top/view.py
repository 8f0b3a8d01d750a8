"""What `sparewatt top` reads of a network, and what it shows of it. Shapes only."""

from __future__ import annotations

import msgspec


class Totals(msgspec.Struct):
    """The pulse has the first three of these; the rest is worked out of its counts."""

    nodes: dict[str, int] = {}
    gpus: int = 0
    vram_gb: int = 0
    jobs: int = 0
    tokens_per_s: float = 0.0
    first_token_ms: float | None = None


class PulseModel(msgspec.Struct):
    """Counts since the gateway started; `first_token_counts` by bucket."""

    id: str
    nodes: int = 0
    warm: int = 0
    running: int = 0
    waiting: int = 0
    requests: dict[str, int] = {}
    completion_tokens: int = 0
    first_token_counts: list[int] = []


class PulseNode(msgspec.Struct):
    id: str
    name: str = ""
    state: str = "unknown"
    gpu: str = ""
    running: int = 0
    queued: int = 0
    slots: int = 0
    tokens: int = 0
    jobs_done: int = 0
    jobs_failed: int = 0
    rtt_ms: float | None = None
    paused: str | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None


class Pulse(msgspec.Struct):
    """GET /v1/pulse, for operators."""

    at: float
    instance: str
    totals: Totals
    running: int = 0
    waiting: int = 0
    tokens_written: int = 0
    errors: dict[str, int] = {}
    first_token_bounds_s: list[float] = []
    models: list[PulseModel] = []
    busiest: list[PulseNode] = []
    troubled: list[PulseNode] = []


class PublicModel(msgspec.Struct):
    id: str
    nodes: int = 0
    warm: int = 0


class PublicNetwork(msgspec.Struct):
    """GET /v1/network, for everybody."""

    at: float
    totals: Totals
    models: list[PublicModel] = []


class FirstTokenPercentiles(msgspec.Struct):
    p50: float | None = None
    p95: float | None = None


class TopErrorRow(msgspec.Struct):
    code: str
    count: int
    """In the last minute."""


class TopModelRow(msgspec.Struct):
    id: str
    nodes: int
    warm: int
    running: int | None = None
    waiting: int | None = None
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    failed: int | None = None
    """In the last minute, by the network's fault."""
    first_token_ms: FirstTokenPercentiles = msgspec.field(default_factory=FirstTokenPercentiles)


class TopNodeRow(msgspec.Struct):
    id: str
    name: str
    state: str
    gpu: str
    running: int
    queued: int
    slots: int
    tokens_per_s: float | None = None
    jobs_done: int = 0
    jobs_failed: int = 0
    temperature_c: float | None = None
    power_watts: float | None = None
    utilisation: float | None = None
    paused: str | None = None


class TopView(msgspec.Struct):
    """One picture. None is what is not known: a rate before the second look, or what only operators see."""

    at: float
    gateway: str
    is_operator: bool
    nodes: dict[str, int]
    gpus: int
    vram_gb: int
    running: int
    tokens_per_s: float | None
    waiting: int | None = None
    requests_per_s: float | None = None
    first_token_ms: FirstTokenPercentiles = msgspec.field(default_factory=FirstTokenPercentiles)
    errors: list[TopErrorRow] = []
    models: list[TopModelRow] = []
    busiest: list[TopNodeRow] = []
    troubled: list[TopNodeRow] = []
