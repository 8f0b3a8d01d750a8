"""Query parameters that handlers of several nouns read."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from sparewatt.core.errors import InvalidField


def choice(request: web.Request, name: str, known: Sequence[str]) -> str:
    """One of a few words, the first by default. Raises InvalidField."""
    word = request.query.get(name, known[0])
    if word not in known:
        raise InvalidField(f"{name} is one of {', '.join(known)}, not {word[:40]!r}.", param=name)
    return word
