"""The vocabulary: every field of a policy and its kind. One table, from which all carriers and checks follow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from sparewatt.core.errors import UnknownField
from sparewatt.policy.gpus import GPU_CLASSES
from sparewatt.policy.kinds.base import Kind
from sparewatt.policy.kinds.choices import Flag, Order, Place, StrictWord, Switch, WeightKind, Word
from sparewatt.policy.kinds.money import Money, PriceCap
from sparewatt.policy.kinds.numbers import Ceiling, Floor, RangeKind, Wish
from sparewatt.policy.kinds.sets import AllOf, ClosedSet, GpuNames, NoneOf, OneOf, Places
from sparewatt.policy.model import Policy
from sparewatt.policy.quantization import QUANTIZATIONS

TIERS = ("community", "verified", "datacenter")
COMPLIANCES = ("gdpr", "hipaa", "soc2", "iso27001")
SORTS = ("price", "latency", "throughput", "score")
WEIGHTS = ("price", "ttft", "throughput", "load", "warm", "fit", "reputation", "distance")

TTFT_MS_MAX = 3_600_000.0
TPS_MAX = 1e7

FIELDS: dict[str, Kind[Any]] = {
    "region": Places(),
    "near": Place(),
    "gpu": GpuNames(),
    "gpu_class": ClosedSet(*GPU_CLASSES, ordered=True),
    "vram_gb": RangeKind(0.0, 1e6),
    "gpu_count": RangeKind(0.0, 1024.0, counts=True),
    "uptime": RangeKind(0.0, 1.0),
    "reputation": RangeKind(0.0, 1.0),
    "compliance": AllOf(*COMPLIANCES),
    "attested_by": OneOf(),
    "tier": ClosedSet(*TIERS, ordered=True),
    "quantizations": ClosedSet(*QUANTIZATIONS),
    "data_policy": StrictWord("no_log", "may_log", demanded_of="no_log"),
    "min_throughput": Floor(0.0, TPS_MAX),
    "max_ttft_ms": Ceiling(0.0, TTFT_MS_MAX),
    "warm": StrictWord("require", "prefer", "any", demanded_of=True),
    "max_price": PriceCap(),
    "max_hourly": Money(),
    "only": OneOf(),
    "ignore": NoneOf(),
    "order": Order(),
    "sort": Word(*SORTS),
    "weights": WeightKind(*WEIGHTS),
    "preferred_min_throughput": Wish(0.0, TPS_MAX),
    "preferred_max_ttft_ms": Wish(0.0, TTFT_MS_MAX),
    "allow_fallbacks": Flag(strict=False),
    "allow_resume": Flag(strict=False),
    "require_parameters": Flag(strict=True),
    "explain": Switch(),
}


def given(policy: Policy) -> Iterator[tuple[str, Any, Kind[Any]]]:
    """The fields that say something: name, value, kind."""
    for name, kind in FIELDS.items():
        value = getattr(policy, name)
        if value is not None:
            yield name, value, kind


def kind_of(name: str, *, at: str, also: Iterable[str] = ()) -> Kind[Any]:
    """The field of this name. Raises UnknownField with the nearest that there is."""
    if name in FIELDS:
        return FIELDS[name]
    close = difflib.get_close_matches(name[:60].lower(), [*FIELDS, *also], n=1, cutoff=0.4)
    raise UnknownField(name, nearest=close[0] if close else None, param=at)
