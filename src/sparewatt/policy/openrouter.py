"""OpenRouter's `provider` object in our words. Every field of it is known here.

A field that restricts is mapped, or refused where it cannot be kept. One that only prefers and cannot be kept is
accepted, and named, so that the reply can say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparewatt.core.errors import InvalidField, UnknownField, UnsupportedParameter
from sparewatt.policy.field_types.choices import FlagField
from sparewatt.policy.field_types.money import MoneyCapField
from sparewatt.policy.field_types.sets import EnumField

_PERCENTILES = ("p50", "p75", "p90", "p99")
_NEVER_CHARGED = ("request", "image", "audio")
"""Prices that this network does not have: any ceiling on them is kept."""
_MS_PER_S = 1000

_flag, _money = FlagField(strict=False), MoneyCapField()


@dataclass(frozen=True, slots=True)
class Translation:
    """Fields in our words, and the names of those that have no effect."""

    fields: Mapping[str, object]
    ignored: tuple[str, ...] = ()


def _data_collection(value: object, at: str) -> Translation:
    (word,) = EnumField("allow", "deny").from_json(value, at=at)
    return Translation({"data_policy": "no_log" if word == "deny" else "may_log"})


def _zdr(value: object, at: str) -> Translation:
    return Translation({"data_policy": "no_log"} if _flag.from_json(value, at=at) else {})


def _distillable(value: object, at: str) -> Translation:
    if _flag.from_json(value, at=at):
        raise UnsupportedParameter(f"'{at}' cannot be kept here: leave it out or set it to false.", param=at)
    return Translation({})


def _sort(value: object, at: str) -> Translation:
    if isinstance(value, Mapping):
        return _sort_object(value, at)
    return Translation({}, ("sort",)) if value == "exacto" else Translation({"sort": value})


def _sort_object(value: Mapping[str, object], at: str) -> Translation:
    _refuse_others(value, ("by", "partition"), at)
    by = Translation({}) if value.get("by") is None else _sort(value["by"], at)
    if value.get("partition") is None:
        return by
    (partition,) = EnumField("model", "none").from_json(value["partition"], at=f"{at}.partition")
    # Jobs are matched within one model, so that `model` is what happens anyway.
    return Translation(by.fields, by.ignored if partition == "model" else (*by.ignored, "sort.partition"))


def _max_price(value: object, at: str) -> Translation:
    if not isinstance(value, Mapping):
        return Translation({"max_price": value})
    for part in _NEVER_CHARGED:
        if value.get(part) is not None:
            _money.from_json(value[part], at=f"{at}.{part}")
    ours = {part: amount for part, amount in value.items() if part not in _NEVER_CHARGED and amount is not None}
    return Translation({"max_price": ours} if ours else {})


def _preferred(name: str, ours: str, factor: int) -> Callable[[object, str], Translation]:
    """A wish as a number, or by percentile: the typical figure is known here, the tail is not."""

    def translate(value: object, at: str) -> Translation:
        if not isinstance(value, Mapping):
            return Translation({ours: _times(value, factor, at)})
        _refuse_others(value, _PERCENTILES, at)
        wishes = {part: _times(wish, factor, f"{at}.{part}") for part, wish in value.items() if wish is not None}
        ignored = tuple(f"{name}.{part}" for part in wishes if part != "p50")
        return Translation({ours: wishes["p50"]} if "p50" in wishes else {}, ignored)

    return translate


def _times(value: object, factor: int, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidField(f"'{at}' must be a number.", param=at)
    return value * factor


def _refuse_others(value: Mapping[str, object], known: tuple[str, ...], at: str) -> None:
    for part in value:
        if part not in known:
            raise UnknownField(f"{at}.{part}", nearest=f"{at}.{known[0]}", param=f"{at}.{part}")


TRANSLATIONS: dict[str, Callable[[object, str], Translation]] = {
    "data_collection": _data_collection,
    "zdr": _zdr,
    "enforce_distillable_text": _distillable,
    "sort": _sort,
    "max_price": _max_price,
    "preferred_min_throughput": _preferred("preferred_min_throughput", "preferred_min_throughput", 1),
    "preferred_max_latency": _preferred("preferred_max_latency", "preferred_max_ttft_ms", _MS_PER_S),
}
"""order, only, ignore, allow_fallbacks, require_parameters and quantizations are the same in both vocabularies."""
