"""Query parameters that handlers of several nouns read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from aiohttp import web

from sparewatt.core.errors import InvalidField

_Word = TypeVar("_Word", bound=str)


def choice(request: web.Request, name: str, words: Sequence[_Word]) -> _Word:
    """One of a few words, the first by default. Raises InvalidField."""
    text = request.query.get(name, words[0])
    for word in words:
        if word == text:
            return word
    raise InvalidField(f"{name} is one of {', '.join(words)}, not {text[:40]!r}.", param=name)
