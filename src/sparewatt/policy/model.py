"""A policy: who may serve a job, and who is liked best. Frozen and hashable, so that it can key a cache.

None means that nothing was said. Money is integer nano-USD. How a field is read, composed and checked stands in
`fields`; this module only holds the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Sort = Literal["price", "latency", "throughput", "score"]
Warmth = Literal["require", "prefer", "any"]
DataPolicy = Literal["no_log", "may_log"]


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from low to high; an open end leaves the bound itself out."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, number: float) -> bool:
        above = number > self.low if self.low_open else number >= self.low
        return above and (number < self.high if self.high_open else number <= self.high)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that are allowed, or, where none are listed, all but the denied ones."""

    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()

    def admit(self, name: str) -> bool:
        return name not in self.denied and (self.allowed is None or name in self.allowed)


@dataclass(frozen=True, slots=True)
class MaxPrice:
    """Ceilings in nano-USD per million tokens."""

    prompt: int | None = None
    completion: int | None = None

    def parts(self) -> list[tuple[str, int]]:
        both = (("prompt", self.prompt), ("completion", self.completion))
        return [(part, nano) for part, nano in both if nano is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One field per word of the vocabulary; `docs/reference/policy.md` describes each."""

    region: frozenset[str] | None = None
    """The places covered, not the words that were written."""
    near: str | None = None
    gpu: NameFilter | None = None
    gpu_class: frozenset[str] | None = None
    vram_gb: Range | None = None
    gpu_count: Range | None = None
    uptime: Range | None = None
    reputation: Range | None = None
    compliance: frozenset[str] | None = None
    attested_by: frozenset[str] | None = None
    tier: frozenset[str] | None = None
    quantizations: frozenset[str] | None = None
    data_policy: DataPolicy | None = None
    min_throughput: float | None = None
    max_ttft_ms: float | None = None
    warm: Warmth | None = None
    max_price: MaxPrice | None = None
    max_hourly: int | None = None
    only: frozenset[str] | None = None
    ignore: frozenset[str] | None = None
    order: tuple[str, ...] | None = None
    sort: Sort | None = None
    weights: tuple[tuple[str, float], ...] | None = None
    preferred_min_throughput: float | None = None
    preferred_max_ttft_ms: float | None = None
    allow_fallbacks: bool | None = None
    allow_resume: bool | None = None
    require_parameters: bool | None = None
    explain: bool | None = None


ANY = Policy()
"""Says nothing: every node may serve."""
