"""The vocabulary: every field of a policy and its kind. One table, from which all carriers and checks follow."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from sparewatt.core.errors import UnknownField
from sparewatt.policy.field_types.base import PolicyField
from sparewatt.policy.field_types.choices import (
    FlagField,
    PlaceField,
    PreferenceOrderField,
    StrictWordField,
    SwitchField,
    WeightsField,
    WordField,
)
from sparewatt.policy.field_types.money import MoneyCapField, PriceCapField
from sparewatt.policy.field_types.numbers import MaximumField, MinimumField, PreferredNumberField, RangeField
from sparewatt.policy.field_types.sets import (
    AllowedNamesField,
    DeniedNamesField,
    EnumField,
    GpuNamesField,
    RegionField,
    RequiredWordsField,
)
from sparewatt.policy.gpus import GPU_CLASSES
from sparewatt.policy.model import Policy
from sparewatt.policy.quantization import QUANTIZATIONS

TIERS = ("community", "verified", "datacenter")
COMPLIANCES = ("gdpr", "hipaa", "soc2", "iso27001")
SORTS = ("price", "latency", "throughput", "score")
WEIGHTS = ("price", "ttft", "throughput", "load", "warm", "fit", "reputation", "distance")

TTFT_MS_MAX = 3_600_000.0
TPS_MAX = 1e7

FIELDS: dict[str, PolicyField[Any]] = {
    "region": RegionField(),
    "near": PlaceField(),
    "gpu": GpuNamesField(),
    "gpu_class": EnumField(*GPU_CLASSES, ordered=True),
    "vram_gb": RangeField(0.0, 1e6),
    "gpu_count": RangeField(0.0, 1024.0, counts=True),
    "uptime": RangeField(0.0, 1.0),
    "reputation": RangeField(0.0, 1.0),
    "compliance": RequiredWordsField(*COMPLIANCES),
    "attested_by": AllowedNamesField(),
    "tier": EnumField(*TIERS, ordered=True),
    "quantizations": EnumField(*QUANTIZATIONS),
    "data_policy": StrictWordField("no_log", "may_log", demanded_of="no_log"),
    "min_throughput": MinimumField(0.0, TPS_MAX),
    "max_ttft_ms": MaximumField(0.0, TTFT_MS_MAX),
    "warm": StrictWordField("require", "prefer", "any", demanded_of=True),
    "max_price": PriceCapField(),
    "max_hourly": MoneyCapField(),
    "only": AllowedNamesField(),
    "ignore": DeniedNamesField(),
    "order": PreferenceOrderField(),
    "sort": WordField(*SORTS),
    "weights": WeightsField(*WEIGHTS),
    "preferred_min_throughput": PreferredNumberField(0.0, TPS_MAX),
    "preferred_max_ttft_ms": PreferredNumberField(0.0, TTFT_MS_MAX),
    "allow_fallbacks": FlagField(strict=False),
    "allow_resume": FlagField(strict=False),
    "require_parameters": FlagField(strict=True),
    "explain": SwitchField(),
}


def given_fields(policy: Policy) -> Iterator[tuple[str, Any, PolicyField[Any]]]:
    """The fields that say something: name, value, kind."""
    for name, kind in FIELDS.items():
        value = getattr(policy, name)
        if value is not None:
            yield name, value, kind


def field_named(name: str, *, at: str, also: Iterable[str] = ()) -> PolicyField[Any]:
    """The field of this name. Raises UnknownField with the nearest that there is."""
    if name in FIELDS:
        return FIELDS[name]
    close = difflib.get_close_matches(name[:60].lower(), [*FIELDS, *also], n=1, cutoff=0.4)
    raise UnknownField(name, nearest=close[0] if close else None, param=at)
