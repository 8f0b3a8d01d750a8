"""Reads a Spheron ICL, version 1.0: as an SDL, with name, duration, mode and tier among the profiles. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.orders.foreign_format import leave_out, only_service, translate
from sparewatt.leasing.orders.foreign_values import mapping
from sparewatt.leasing.orders.translated_order import TranslatedOrder

_KNOWN = {"version", "services", "profiles", "deployment"}
_LONG_UNITS = {"mon": 30, "month": 30, "months": 30, "y": 365, "year": 365, "years": 365}
"""Of durations, in days."""
_TIERS = {"community": ("community",), "secured": ("verified", "datacenter"), "secure": ("verified", "datacenter")}


def read_icl(document: Mapping[str, Any]) -> TranslatedOrder:
    """Raises InvalidField, or UnsupportedParameter for what cannot be translated without another meaning."""
    profiles = mapping(document.get("profiles"), "profiles")
    moved = {"placement": document["placement"]} if "placement" in document and "placement" not in profiles else {}
    order = translate(only_service({**document, "profiles": {**profiles, **moved}}))
    leave_out(order, sorted(set(map(str, document)) - _KNOWN - set(moved)))
    for name, value in profiles.items():
        match name:
            case "name":
                order.fields[name] = value
            case "duration":
                order.fields[name] = _duration(value, order)
            case "mode":
                _note_mode(str(value), order)
            case "tier" | "tiers":
                _translate_tiers(value, order)
            case "compute" | "placement":
                pass
            case _:
                leave_out(order, [f"profiles.{name}"])
    if "duration" not in profiles:
        order.note("The file has no duration: the order is for one hour, unless you give --duration.")
    return order.finish()


def _duration(value: Any, order: TranslatedOrder) -> Any:
    """A month has 30 days, a year 365; all other units are the parser's."""
    found = re.fullmatch(r"(\d{1,4})\s*([a-z]+)", str(value).strip().lower())
    if found is None or found[2] not in _LONG_UNITS:
        return value
    days = int(found[1]) * _LONG_UNITS[found[2]]
    order.note(f"'profiles.duration': {value} is {days} days.")
    return f"{days}d"


def _note_mode(mode: str, order: TranslatedOrder) -> None:
    if mode != "provider":
        order.note(f"'profiles.mode': {mode[:20]!r} has no meaning here: each node is a provider.")


def _translate_tiers(value: Any, order: TranslatedOrder) -> None:
    """`community-2` and `secured-1` are levels within a tier; there are none here."""
    tiers: set[str] = set()
    for entry in value if isinstance(value, list) else [value]:
        for word in str(entry).lower().split("/"):
            name, dash, _ = word.partition("-")
            if name not in _TIERS:
                raise InvalidField(f"'profiles.tier': {word[:40]!r} is not known.", param="tier")
            tiers.update(_TIERS[name])
            if dash:
                order.note(f"'profiles.tier': {word[:40]} counts as {name}.")
    if len(tiers) < len({each for names in _TIERS.values() for each in names}):
        order.policy["tier"] = sorted(tiers)
