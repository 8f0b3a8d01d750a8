"""Patterns of JSON schemas, in the words that llama.cpp's grammars have. Pure.

Of a pattern that it cannot express, llama.cpp makes any text, and tells nobody. Its grammars know no classes such as
`\\d`, and match from the first character to the last; both can be written otherwise. They cannot look around or back:
such a pattern is refused.
"""

from __future__ import annotations

import re
from typing import Any

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t\\r\\n"}
_UNQUOTED = '\\"\\\\'
"""In a class that is left out of: a quote or a backslash would end the JSON text, or begin an escape in it."""
_ANY = f"[^{_UNQUOTED}\\r\\n]"
_NAMED_GROUP = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})
_CHATS = ("response_format", "tools", "json_schema")
"""The fields of a request that hold schemas."""


class PatternNotHeld(ValueError):
    """A pattern that no grammar of llama.cpp can hold an answer to."""


def with_held_patterns(body: dict[str, Any]) -> dict[str, Any]:
    """The request with every pattern as llama.cpp understands it. Raises PatternNotHeld."""
    return body | {name: _held_in(body[name]) for name in _CHATS if name in body}


def _held_in(value: Any) -> Any:
    if isinstance(value, list):
        return [_held_in(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: each
        if name in _NOT_SCHEMAS
        else held_pattern(each)
        if name == "pattern" and isinstance(each, str)
        else _held_in(each)
        for name, each in value.items()
    }


def held_pattern(pattern: str) -> str:
    """The same pattern, from its first character to its last. Raises PatternNotHeld."""
    has_start, has_end = pattern.startswith("^"), _ends_in_anchor(pattern)
    inside = _plain(pattern[has_start : len(pattern) - has_end])
    if has_start and has_end:
        return f"^{inside}$"
    return f"^{'' if has_start else f'{_ANY}*'}({inside}){'' if has_end else f'{_ANY}*'}$"


def _ends_in_anchor(pattern: str) -> bool:
    before = pattern[:-1]
    return pattern.endswith("$") and (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _plain(pattern: str) -> str:
    """Without classes by a letter, names of groups and marks of laziness."""
    parts: list[str] = []
    at, is_in_class = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            parts.append(_escape(pattern[at + 1 : at + 2], is_in_class=is_in_class))
            at += 2
            continue
        if not is_in_class and sign == "(" and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] != ":":
            named = _NAMED_GROUP.match(pattern, at)
            if named is None:
                raise PatternNotHeld("a pattern that looks around cannot be held to")
            parts.append("(")
            at = named.end()
            continue
        if not is_in_class and sign in "^$":
            raise PatternNotHeld("a pattern with ^ or $ in its middle cannot be held to")
        if not is_in_class and sign == "?" and parts and parts[-1] in ("*", "+", "?", "}"):
            at += 1  # lazy or greedy, the same texts match as a whole
            continue
        is_negated = not is_in_class and pattern.startswith("[^", at)
        parts.append(f"[^{_UNQUOTED}" if is_negated else _ANY if sign == "." and not is_in_class else sign)
        is_in_class = sign == "[" if not is_in_class else sign != "]"
        at += 2 if is_negated else 1
    return "".join(parts)


def _escape(letter: str, *, is_in_class: bool) -> str:
    if letter in _CLASSES:
        return _CLASSES[letter] if is_in_class else f"[{_CLASSES[letter]}]"
    if letter.lower() in _CLASSES and letter and not is_in_class:
        return f"[^{_UNQUOTED}{_CLASSES[letter.lower()]}]"
    if not letter or letter.isdigit() or letter in "bBAzZpPkGDWS":
        raise PatternNotHeld(f"a pattern with \\{letter} cannot be held to")
    return f"\\{letter}"
