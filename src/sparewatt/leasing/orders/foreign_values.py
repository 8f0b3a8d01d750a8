"""Sizes, numbers of processors and places as SDL and ICL files write them. Pure; raises InvalidField."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.orders.spheron_regions import COUNTRY_OF_REGION
from sparewatt.policy.regions import code_of

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgtpe])(i?))?b?", re.IGNORECASE)
_POWER = {letter: number for number, letter in enumerate("kmgtpe", start=1)}
_DIRECTION = re.compile(r"(?:north|south|east|west|central)+")
_PLACES = {"asia": "AP", "europe": "EU", "apac": "AP"}
SIZE_CHARS_MAX = 20


def gigabytes(value: Any, at: str) -> str:
    """In GB of 10^9 bytes, exactly. `16gi` is `16Gi`; only `m` alone may stand for a thousandth, and is refused."""
    text = str(value).strip()
    found = _QUANTITY.fullmatch(text)
    if found is None or len(text) > SIZE_CHARS_MAX or text.endswith("m"):
        raise InvalidField(f"'{at}' is a size, e.g. 512Mi or 16Gi.", param=at)
    number, letter, is_binary = found[1], found[2], bool(found[3])
    unit = 1 if letter is None else (1024 if is_binary else 1000) ** _POWER[letter.lower()]
    return str((Decimal(number) * unit / 10**9).normalize())


def processors(value: Any) -> str:
    text = str(value).strip()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", text)
    if found is None or len(text) > SIZE_CHARS_MAX:
        raise InvalidField("'cpu.units' is a number of processors, e.g. 0.5 or 500m.", param="cpu")
    return str(Decimal(found[1]) / (1_000 if found[2] else 1))


def nominal_gb(value: Any) -> int:
    """Cards are named by round numbers: one of `24Gi` has somewhat less than 24 * 2^30 bytes."""
    found = re.fullmatch(r"(\d+)\s*(?:gi?b?)?", str(value).strip().lower())
    if found is None or len(found[1]) > 5:
        raise InvalidField("'gpu.ram' is a size, e.g. 24Gi.", param="gpu")
    return int(found[1])


def places(text: str) -> dict[str, str]:
    """By the words of a list (`us-east;germany`): the country or group that each stands for. Empty for any place."""
    words = [word.strip().lower() for word in re.split("[;,]", text) if word.strip()]
    if not set(words) - {"any", "global"}:
        return {}
    return {word: _place(word) for word in words}


def _place(word: str) -> str:
    """`us-west` and `na-us-west` are the US: countries are as fine as an order can say.

    A name with a number is a cloud's region: `eu-west-2` is London, outside the EU.
    """
    known = COUNTRY_OF_REGION.get(word) or code_of(_PLACES.get(word, word))
    if known is not None:
        return known
    *parts, last = word.split("-")
    codes = [code_of(_PLACES.get(part, part)) for part in parts]
    place = codes[-1] if codes and None not in codes and _DIRECTION.fullmatch(last) else None
    if place is None:
        raise InvalidField(
            f"'attributes.region': {word[:40]!r} names no country or group of countries.", param="region"
        )
    return place


def mapping(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidField(f"'{at}' is missing, or is not a list of named fields.", param=at)
    return value


def sequence(value: Any, at: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidField(f"'{at}' must be a list.", param=at)
    return value
