"""Translates OpenRouter's `provider` object into our vocabulary. Every field of it is known here.

A field that restricts is translated, or refused if it cannot be satisfied. A field that only prefers and has no
counterpart here is accepted without effect, and named, so that the reply can name it as ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparewatt.core.errors import InvalidField, UnknownField, UnsupportedParameter
from sparewatt.policy.field_types.choices import FlagField
from sparewatt.policy.field_types.numbers import MoneyCapField, scalar_text
from sparewatt.policy.field_types.sets import EnumField

_PERCENTILES = ("p50", "p75", "p90", "p99")
_NEVER_CHARGED = ("request", "image", "audio")
"""Prices that this network does not have: any limit on them is satisfied."""

_flag, _money = FlagField(strict=False), MoneyCapField()


class Translation(NamedTuple):
    """Fields of our vocabulary, and the names of OpenRouter's that have no effect."""

    fields: Mapping[str, object]
    ignored: tuple[str, ...] = ()


def _data_collection(value: object, at: str) -> Translation:
    (word,) = EnumField("allow", "deny").from_json(value, at=at)
    return Translation({"data_policy": "no_log" if word == "deny" else "may_log"})


def _zdr(value: object, at: str) -> Translation:
    """Zero data retention: neither nodes nor the gateway keep anything."""
    return Translation({"data_policy": "no_log", "retention": "none"} if _flag.from_json(value, at=at) else {})


def _distillable(value: object, at: str) -> Translation:
    if _flag.from_json(value, at=at):
        raise UnsupportedParameter(f"'{at}' cannot be satisfied here: leave it out or set it to false.", param=at)
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
    # Jobs are matched within one model, which is what `model` asks for.
    return Translation(by.fields, by.ignored if partition == "model" else (*by.ignored, "sort.partition"))


def _max_price(value: object, at: str) -> Translation:
    if not isinstance(value, Mapping):
        return Translation({"max_price": value})
    for part in _NEVER_CHARGED:
        if value.get(part) is not None:
            _money.from_json(value[part], at=f"{at}.{part}")
    ours = {part: amount for part, amount in value.items() if part not in _NEVER_CHARGED and amount is not None}
    return Translation({"max_price": ours} if ours else {})


def _preferred(name: str) -> Callable[[object, str], Translation]:
    """A number, or numbers by percentile. The matcher has no counterpart: it has no effect."""

    def translate(value: object, at: str) -> Translation:
        if isinstance(value, Mapping):
            _refuse_others(value, _PERCENTILES, at)
        numbers = value if isinstance(value, Mapping) else {"": value}
        for part, number in numbers.items():
            if scalar_text(number, at=at) is None and not (part and number is None):
                raise InvalidField(f"'{at}' must be a number, or numbers by percentile.", param=at)
        return Translation({}, (name,))

    return translate


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
    "preferred_min_throughput": _preferred("preferred_min_throughput"),
    "preferred_max_latency": _preferred("preferred_max_latency"),
}
"""order, only, ignore, allow_fallbacks, require_parameters and quantizations are the same in both vocabularies."""
