"""RFC 8785 (JSON Canonicalization Scheme): one text for one value, so that its hash can stand for it.

Numbers other than integers are refused: nothing that is hashed here has any, and how ECMAScript writes them is the one
hard part of the scheme.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

EXACT_INTEGER_MAX = 2**53 - 1
"""Beyond it, readers that keep numbers as doubles see another one."""
DEPTH_MAX = 16


def canonical_json(value: object) -> str:
    """Raises ValueError for what the scheme cannot write: another type, a lone surrogate, a number too large."""
    text = "".join(_parts(value, depth=0))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a string has half of a surrogate pair, which is no text") from None
    return text


def _parts(value: object, *, depth: int) -> list[str]:
    if depth > DEPTH_MAX:
        raise ValueError("the value is nested too deeply")
    match value:
        case None | bool() | str():
            return [json.dumps(value, ensure_ascii=False)]
        case int():
            if abs(value) > EXACT_INTEGER_MAX:
                raise ValueError(f"{value} does not fit a double")
            return [str(value)]
        case Mapping():
            return _object(value, depth=depth)
        case list() | tuple():
            items = [part for each in value for part in (",", *_parts(each, depth=depth + 1))]
            return ["[", *items[1:], "]"]
        case _:
            raise ValueError(f"a {type(value).__name__} has no canonical form here")


def _object(value: Mapping[object, object], *, depth: int) -> list[str]:
    names = [name for name in value if isinstance(name, str)]
    if len(names) != len(value):
        raise ValueError("the names of an object are strings")
    parts: list[str] = []
    for name in sorted(names, key=_utf16):
        parts += [",", json.dumps(name, ensure_ascii=False), ":", *_parts(value[name], depth=depth + 1)]
    return ["{", *parts[1:], "}"]


def _utf16(name: str) -> bytes:
    """The scheme sorts by UTF-16 code units; code points above U+FFFF come before U+E000 that way."""
    return name.encode("utf-16-be", "surrogatepass")
