"""Query parameters that handlers of several nouns read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from aiohttp import web

from sparewatt.core.errors import InvalidField

_Word = TypeVar("_Word", bound=str)
_ADDRESS = re.compile(r"0x[0-9a-f]{40}")


def choice(request: web.Request, name: str, words: Sequence[_Word]) -> _Word:
    """One of a few words, the first by default. Raises InvalidField."""
    text = request.query.get(name, words[0])
    for word in words:
        if word == text:
            return word
    raise InvalidField(f"{name} is one of {', '.join(words)}, not {text[:40]!r}.", param=name)


def address_of(request: web.Request, name: str) -> str | None:
    """An address on the chain, in lower case; None if it is not given. Raises InvalidField."""
    text = request.query.get(name)
    if text is not None and not _ADDRESS.fullmatch(text.lower()):
        raise InvalidField(f"{text[:60]!r} is not an address: 0x and 40 hex digits.", param=name)
    return None if text is None else text.lower()
