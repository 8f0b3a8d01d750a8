"""A policy of the vocabulary as the filters of an order on chain: masks of ids, bounds, and the row of distances.

What a contract cannot hold is refused by name: a renter who asks for it must not believe that it counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.policy.fields import given_fields
from sparewatt.policy.gpus import GPU_CLASSES
from sparewatt.policy.market_ids import (
    COMPLIANCE_ID,
    COUNTRY_ID,
    GPU_CLASS_ID,
    GPU_MODEL_ID,
    NONE,
    OTHER_GPU,
    TIER_ID,
    gpu_model_id_of,
    mask_of,
    models_of_class,
)
from sparewatt.policy.model import NameFilter, Policy, Range
from sparewatt.policy.regions import COUNTRIES
from sparewatt.policy.zones import ZONES_MAX, distances_from
from sparewatt.protocol.contracts.message_ranges import PPM, PRICE_UUSD_END

NANO_PER_MICRO = 1_000
LATENCY_VALUE_DEFAULT = 500
"""µUSD per hour and millisecond: 100 ms nearer are worth $0.05 an hour to a renter who asks for `near`."""
RTT_UNIT_MS = 2
PROVIDERS_MAX = 8
"""Of `only`, and of `ignore`."""
UINT16_MAX = 0xFFFF
_NO_DISTANCES = bytes(ZONES_MAX)
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")
_HELD = frozenset(
    {"region", "near", "gpu", "gpu_class", "vram_gb", "gpu_count", "uptime", "reputation", "compliance"}
    | {"attested_by", "tier", "max_hourly", "only", "ignore"}
)
_GPU_FIELDS = ("gpu", "gpu_class", "vram_gb")
_INSTEAD = {"max_price": "max_hourly"}
"""What a renter who asks for a field of answers may have meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFilters:
    """The part of an order's terms that a policy decides, by the names of `OrderTerms`."""

    countries: int = 0
    tiers: int = 0
    gpu_models: int = 0
    min_gpu_class: int = 0
    min_vram_gb: int = 0
    gpu_units: int = 0
    compliance: int = 0
    min_uptime_ppm: int = 0
    min_reputation_ppm: int = 0
    max_price_uusd: int | None = None
    """None: the policy names no price."""
    latency_value: int = 0
    rtt_row: bytes = _NO_DISTANCES
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def order_filters(policy: Policy) -> OrderFilters:
    """Raises UnsupportedParameter for a field that no order can hold, InvalidField for a value that it cannot."""
    for name, _, _ in given_fields(policy):
        if name not in _HELD:
            instead = f", or say {_INSTEAD[name]!r}" if name in _INSTEAD else ""
            raise UnsupportedParameter(
                f"An order on chain cannot hold the field {name!r}. Leave it out{instead}.", param=name
            )
    units = _units(policy.gpu_count)
    if units == 0 and policy.gpu_count is not None:
        _refuse_gpu_fields(policy)
    minimum_class = _minimum_class(policy.gpu_class)
    return OrderFilters(
        countries=_countries(policy.region),
        tiers=_tiers(policy.tier),
        gpu_models=_gpu_models(policy.gpu, None if minimum_class else policy.gpu_class),
        min_gpu_class=minimum_class,
        min_vram_gb=_least_whole(policy.vram_gb, at="vram_gb", end=UINT16_MAX + 1),
        gpu_units=units,
        compliance=_compliance(policy.compliance, policy.attested_by),
        min_uptime_ppm=_least_ppm(policy.uptime, at="uptime"),
        min_reputation_ppm=_least_ppm(policy.reputation, at="reputation"),
        max_price_uusd=_max_price(policy.max_hourly),
        latency_value=LATENCY_VALUE_DEFAULT if policy.near is not None else 0,
        rtt_row=rtt_row(policy.near),
        only=_addresses(policy.only, at="only"),
        ignore=_addresses(policy.ignore, at="ignore"),
    )


def rtt_row(near: str | None) -> bytes:
    """Byte z: the distance to zone z in units of 2 ms, rounded up. Zeros without a place to be near to.

    Byte 0, of providers whose zone is unknown, is that of the farthest zone.
    """
    if near is None:
        return _NO_DISTANCES
    return bytes(-(-distance_ms // RTT_UNIT_MS) for distance_ms in distances_from(near))


def _countries(region: frozenset[str] | None) -> int:
    if region is None:
        return 0
    return _mask((COUNTRY_ID[place] for place in region & COUNTRIES), at="region")


def _tiers(tiers: frozenset[str] | None) -> int:
    return 0 if tiers is None else _mask((TIER_ID[tier] for tier in tiers), at="tier")


def _mask(ids: Iterable[int], *, at: str) -> int:
    mask = mask_of(*ids)
    if not mask:
        raise InvalidField(f"'{at}' leaves no provider.", param=at)
    return mask


def _minimum_class(classes: frozenset[str] | None) -> int:
    """The lowest class, if all above it are allowed as well; 0 if the classes do not form such a run."""
    if classes is None:
        return NONE
    lowest = next(at for at, name in enumerate(GPU_CLASSES) if name in classes)
    return GPU_CLASS_ID[GPU_CLASSES[lowest]] if classes == frozenset(GPU_CLASSES[lowest:]) else NONE


def _gpu_models(names: NameFilter | None, classes: frozenset[str] | None) -> int:
    """0 for any. Classes that the order's minimum cannot express become the models that belong to them."""
    if names is None and classes is None:
        return 0
    allowed = {*GPU_MODEL_ID.values(), OTHER_GPU}
    if classes is not None:
        allowed = {number for name in classes for number in models_of_class(name)}
    if names is not None and names.allowed is not None:
        allowed &= {_known_gpu(name) for name in names.allowed}
    if names is not None:
        allowed -= {_known_gpu(name) for name in names.denied}
    return _mask(allowed, at="gpu" if names is not None else "gpu_class")


def _known_gpu(name: str) -> int:
    number = gpu_model_id_of(name)
    if number in {NONE, OTHER_GPU}:
        raise InvalidField(
            f"'gpu': {name[:60]!r} is not in the table of GPU models ('sparewatt market tables').", param="gpu"
        )
    return number


def _units(count: Range | None) -> int:
    """A bound from above is refused, unless it is the number itself: an order says how many it takes."""
    if count is None:
        return 1
    if math.isfinite(count.high) and count.high != count.low:
        raise InvalidField("'gpu_count': an order takes a number of GPUs, e.g. gpu_count=2.", param="gpu_count")
    return _least(count, at="gpu_count", end=UINT16_MAX + 1)


def _least_whole(bound: Range | None, *, at: str, end: int) -> int:
    if bound is None:
        return 0
    if math.isfinite(bound.high):
        raise InvalidField(f"'{at}': an order holds a least value only, e.g. {at}>=24.", param=at)
    return _least(bound, at=at, end=end)


def _least(bound: Range, *, at: str, end: int) -> int:
    least = math.floor(bound.low) + 1 if bound.low_open else math.ceil(max(0.0, bound.low))
    if not 0 <= least < end:
        raise InvalidField(f"'{at}' must be below {end}.", param=at)
    return least


def _least_ppm(bound: Range | None, *, at: str) -> int:
    if bound is None:
        return 0
    if bound.high < 1.0:
        raise InvalidField(f"'{at}': an order holds a least value only, e.g. {at}>=0.9.", param=at)
    least = round(max(0.0, bound.low) * PPM) + bound.low_open
    if least > PPM:
        raise InvalidField(f"'{at}' must be from 0 to 1.", param=at)
    return least


def _compliance(standards: frozenset[str] | None, auditors: frozenset[str] | None) -> int:
    """A bit for each (standard, auditor): contracts ask for all bits, so the auditor of each must be clear."""
    if standards is None:
        if auditors is not None:
            raise InvalidField("'attested_by' says who vouches for a standard: name it by 'compliance'.")
        return 0
    return mask_of(*(_pair(standard, auditors) for standard in sorted(standards)))


def _pair(standard: str, auditors: frozenset[str] | None) -> int:
    known = {auditor: number for (name, auditor), number in COMPLIANCE_ID.items() if name == standard}
    chosen = [number for auditor, number in known.items() if auditors is None or auditor in auditors]
    if len(chosen) != 1:
        raise InvalidField(
            f"'attested_by' must name one auditor of {standard}: {', '.join(sorted(known))}.", param="attested_by"
        )
    return chosen[0]


def _max_price(hourly_nano: int | None) -> int | None:
    if hourly_nano is None:
        return None
    micro = hourly_nano // NANO_PER_MICRO
    if not 1 <= micro < PRICE_UUSD_END:
        raise InvalidField("'max_hourly' must be from 0.000001 to 1,099,511 dollars.", param="max_hourly")
    return micro


def _addresses(names: frozenset[str] | None, *, at: str) -> tuple[str, ...]:
    found = tuple(sorted(names or ()))
    if len(found) > PROVIDERS_MAX:
        raise InvalidField(f"'{at}' may name at most {PROVIDERS_MAX} providers.", param=at)
    for name in found:
        if not _ADDRESS.fullmatch(name):
            raise InvalidField(f"'{at}': {name[:60]!r} is no provider's address: 0x and 40 hex digits.", param=at)
    return found


def _refuse_gpu_fields(policy: Policy) -> None:
    given = [name for name in _GPU_FIELDS if getattr(policy, name) is not None]
    if given:
        raise InvalidField(f"'{given[0]}' has no meaning in an order for 0 GPUs.", param=given[0])
