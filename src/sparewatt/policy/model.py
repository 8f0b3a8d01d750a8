"""A policy: which nodes may serve a job, and which are preferred. Frozen and hashable, so that it can key a cache.

None means that the field is not set. Money is integer nano-USD. This module has the values only; `fields` says how each
field is parsed, composed and checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Sort = Literal["price", "latency", "throughput", "score"]
Warmth = Literal["require", "prefer", "any"]
DataPolicy = Literal["no_log", "may_log"]
Retention = Literal["none", "hour", "day"]
CheckConsent = Literal["none", "allowed"]


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from low to high; an open end excludes the bound itself."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def holds(self, number: float) -> bool:
        above = number > self.low if self.low_open else number >= self.low
        return above and (number < self.high if self.high_open else number <= self.high)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """The allowed names, or, if `allowed` is None, all but the denied ones."""

    allowed: frozenset[str] | None = None
    denied: frozenset[str] = frozenset()

    def admit(self, name: str) -> bool:
        return name not in self.denied and (self.allowed is None or name in self.allowed)


@dataclass(frozen=True, slots=True)
class MaxPrice:
    """Upper bounds in nano-USD per million tokens."""

    prompt: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One attribute per field of the vocabulary; `docs/reference/policy.md` describes each."""

    region: frozenset[str] | None = None
    """All places that the words in the policy cover."""
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
    allow_fallbacks: bool | None = None
    allow_resume: bool | None = None
    require_parameters: bool | None = None
    retention: Retention | None = None
    """How long the gateway may keep what a request said; None: as long as the request asks for."""
    checks: CheckConsent | None = None


ANY = Policy()
"""No field is set: every node may serve."""
