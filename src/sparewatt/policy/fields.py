"""The vocabulary: every field of a policy and its type. All carriers and checks follow from this table."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from sparewatt.core.errors import UnknownField, UnsupportedParameter
from sparewatt.policy.field_types import choices, numbers, sets
from sparewatt.policy.field_types.base import PolicyField
from sparewatt.policy.gpus import GPU_CLASSES
from sparewatt.policy.model import Policy
from sparewatt.policy.quantization import QUANTIZATIONS

TIERS = ("community", "verified", "datacenter")
COMPLIANCES = ("gdpr", "hipaa", "soc2", "iso27001")
RETENTIONS = ("none", "hour", "day")
SORTS = ("price", "latency", "throughput", "score")
WEIGHTS = ("price", "ttft", "throughput", "load", "warm", "fit", "reputation", "distance")

FIELDS: dict[str, PolicyField[Any]] = {
    "region": sets.RegionField(),
    "near": choices.PlaceField(),
    "gpu": sets.GpuNamesField(),
    "gpu_class": sets.EnumField(*GPU_CLASSES, ordered=True),
    "vram_gb": numbers.RangeField(0.0, 1e6),
    "gpu_count": numbers.RangeField(0.0, 1024.0, counts=True),
    "uptime": numbers.RangeField(0.0, 1.0),
    "reputation": numbers.RangeField(0.0, 1.0),
    "compliance": sets.RequiredWordsField(*COMPLIANCES),
    "attested_by": sets.AllowedNamesField(),
    "tier": sets.EnumField(*TIERS, ordered=True),
    "quantizations": sets.EnumField(*QUANTIZATIONS),
    "data_policy": choices.StrictWordField("no_log", "may_log", required_fact="no_log"),
    "min_throughput": numbers.MinimumField(0.0, 1e7),
    "max_ttft_ms": numbers.MaximumField(0.0, 3_600_000.0),
    "warm": choices.StrictWordField("require", "prefer", "any", required_fact=True),
    "max_price": numbers.PriceCapField(),
    "max_hourly": numbers.MoneyCapField(),
    "only": sets.AllowedNamesField(),
    "ignore": sets.DeniedNamesField(),
    "order": choices.PreferenceOrderField(),
    "sort": choices.WordField(*SORTS),
    "weights": choices.WeightsField(*WEIGHTS),
    "allow_fallbacks": choices.FlagField(strict=False),
    "allow_resume": choices.FlagField(strict=False),
    "require_parameters": choices.FlagField(strict=True),
    "retention": choices.RankedWordField(*RETENTIONS),
    "checks": choices.StrictWordField("none", "allowed", required_fact="none"),
}

_USE_THROUGHPUT = "Use 'min_throughput' to require a speed, or sort=throughput to prefer fast nodes."
_USE_TTFT = "Use 'max_ttft_ms' to require a time to first token, or sort=latency to prefer quick nodes."
RETIRED = {
    "preferred_min_throughput": _USE_THROUGHPUT,
    "preferred_max_latency": _USE_TTFT,
    "preferred_max_ttft_ms": _USE_TTFT,
    "explain": "Every match is explained: see GET /v1/matches/{id} or 'sparewatt match explain ID', with the id in the "
    "reply's header x-sparewatt-match-id.",
}
"""Fields without effect, refused by name, and what to use instead. Older versions accepted and stored them."""


def given_fields(policy: Policy) -> Iterator[tuple[str, Any, PolicyField[Any]]]:
    """The fields that are set: name, value and type."""
    for name, field in FIELDS.items():
        value = getattr(policy, name)
        if value is not None:
            yield name, value, field


def field_named(name: str, *, at: str, also: Iterable[str] = ()) -> PolicyField[Any]:
    """The field of this name. Raises UnknownField with the nearest name, or UnsupportedParameter."""
    if name in FIELDS:
        return FIELDS[name]
    if name in RETIRED:
        raise without_effect(name, at=at)
    close = difflib.get_close_matches(name[:60].lower(), [*FIELDS, *also], n=1, cutoff=0.4)
    raise UnknownField(name, nearest=close[0] if close else None, param=at)


def without_effect(name: str, *, at: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"The field {name!r} has no effect. {RETIRED.get(name, 'Leave it out.')}", param=at)
