"""The grammar of a policy in one line: `region=EU,NA gpu_class>=a100 gpu in ["RTX 4090", l4]`.

Conditions are separated by spaces, and all must hold. A word with a space, a comma or a sign in it is quoted as in
JSON. This module knows the syntax only, no field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import KIB

POLICY_TEXT_CHARS_MAX = 8 * KIB
"""A policy in one line: no longer than a header may be."""
POLICY_CONDITIONS_MAX = 64
"""Conditions of one policy: twice as many as there are fields."""

_ITEM = r'(?:"(?:[^"\\]|\\.)*"|[^\s,\[\]"]+)'
_LIST = rf"\[\s*(?:{_ITEM}(?:\s*,\s*{_ITEM})*)?\s*\]"
_VALUE = rf"(?P<value>{_LIST}|{_ITEM}(?:,{_ITEM})*)(?=\s|$)"
_SIGN = r"(?P<sign>>=|<=|!=|==|=|<|>)"
_FIELD = r"(?P<field>[A-Za-z_][\w.]*)"

_CONDITION = re.compile(rf"\s*{_FIELD}(?:\s*{_SIGN}\s*|\s+(?P<word>notin|in)(?:\s+|(?=\[))){_VALUE}", re.ASCII)
_BARE_CONDITION = re.compile(rf"\s*(?:{_SIGN}|(?P<word>notin|in)(?=[\s\[]))\s*{_VALUE}", re.ASCII)
_HEAD = re.compile(rf"{_FIELD}(?P<sign>[<>!])", re.ASCII)
_PLAIN_LIST = re.compile(rf"{_LIST}|{_ITEM}(?:,{_ITEM})+")
_ITEMS = re.compile(_ITEM)
_NAME_SHOWN = 60
_STARTS_AS_CONDITION = re.compile(r"\s*(?:[<>=!]|(?:notin|in)[\s\[])")
_PLAIN = re.compile(r"[^\s,\[\]\"<>=!\\]+", re.ASCII)


class Condition(NamedTuple):
    field: str
    operator: str
    items: tuple[str, ...]


def split_line(text: str, *, at: str) -> list[Condition]:
    """The conditions of a line. Raises InvalidField."""
    return [
        Condition(match["field"], _operator(match), _items(match["value"], at=at))
        for match in _matches(_CONDITION, text, at=at)
    ]


def split_bare(text: str, *, at: str) -> list[tuple[str, tuple[str, ...]]]:
    """A value with its operators (`>=24 <80`). Without an operator it is a single word, spaces included."""
    if not _STARTS_AS_CONDITION.match(text):
        return [("=", (text,))]
    matches = _matches(_BARE_CONDITION, text, at=at)
    return [(_operator(match), _items(match["value"], at=at)) for match in matches]


def split_pair(name: str, value: str) -> list[Condition]:
    """The conditions of one pair of a query string: `uptime` and `>=0.9`, `region` and `EU,NA`.

    An operator that was not percent-encoded splits differently: `?uptime>=0.9` arrives as `uptime>` and `0.9`, and
    `?uptime<0.9` as a name alone.
    """
    head = _HEAD.match(name)
    if head is not None:
        rest = f"{name[head.end() :]}{'=' if value else ''}{value}"
        name, value = head["field"], f"{head['sign']}{rest}"
    if _PLAIN_LIST.fullmatch(value):
        value = f"={value}"
    return [Condition(name, operator, items) for operator, items in split_bare(value, at=name[:_NAME_SHOWN])]


def _matches(pattern: re.Pattern[str], text: str, *, at: str) -> Iterator[re.Match[str]]:
    if len(text) > POLICY_TEXT_CHARS_MAX:
        raise InvalidField(f"'{at}' is longer than {POLICY_TEXT_CHARS_MAX} characters.", param=at)
    end = len(text.rstrip())
    position, count = 0, 0
    while position < end:
        match = pattern.match(text, position)
        if match is None or count == POLICY_CONDITIONS_MAX:
            raise _unreadable(text[position:], at=at, many=match is not None)
        yield match
        position, count = match.end(), count + 1


def _unreadable(rest: str, *, at: str, many: bool) -> InvalidField:
    if many:
        return InvalidField(f"'{at}' has more than {POLICY_CONDITIONS_MAX} conditions.", param=at)
    return InvalidField(
        f"'{at}' cannot be read from {rest.strip()[:40]!r} on. Write conditions such as region=EU gpu_class>=a100.",
        param=at,
    )


def _operator(match: re.Match[str]) -> str:
    operator = match["word"] or match["sign"]
    return "=" if operator == "==" else str(operator)


def _items(value: str, *, at: str) -> tuple[str, ...]:
    return tuple(_unquoted(item, at=at) for item in _ITEMS.findall(value))


def _unquoted(item: str, *, at: str) -> str:
    if not item.startswith('"'):
        return item
    try:
        return str(json.loads(item))
    except ValueError:
        raise InvalidField(f"'{at}': {item[:40]} is not quoted as JSON quotes.", param=at) from None


def join_items(items: Iterable[str]) -> str:
    """Words as part of a line; in ASCII, since headers are."""
    written = ",".join(item if _PLAIN.fullmatch(item) and item.isascii() else json.dumps(item) for item in items)
    return written or "[]"


def number_text(number: float) -> str:
    """The shortest text that reads back as the same number."""
    if isinstance(number, int):
        return str(number)
    return str(int(number)) if math.isfinite(number) and number == int(number) and abs(number) < 1e15 else repr(number)
