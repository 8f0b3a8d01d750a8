"""Pages of lists that live in memory: a bounded number of items, a cursor behind the last of them, no long tick.

A list is read in pieces, and other requests are answered between two of them. The cursor is the sort key of the last
item that was shown: items that come and go meanwhile shift nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Any, Generic, TypeVar

import msgspec
from aiohttp import web

from sparewatt.core.errors import InvalidField
from sparewatt.edge.bodies import whole_number

PAGE_MAX = 200
"""Items of a page, and how many are on one unless a request asks for fewer."""
PAGE_QUERY = ("limit", "after")
STEPS_PER_TICK = 200
"""Units of work, a few microseconds each, until other requests have their turn."""
_CURSOR_CHARS_MAX = 1_000

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=tuple[Any, ...])


def read_limit(request: web.Request) -> int:
    """Raises InvalidField."""
    return whole_number(request, "limit", default=PAGE_MAX, most=PAGE_MAX)


def read_cursor(request: web.Request, shape: type[_Key]) -> _Key | None:
    """The sort key behind which the page begins; None for the first page. Raises InvalidField."""
    text = request.query.get("after")
    if text is None:
        return None
    try:
        data = base64.urlsafe_b64decode(text[:_CURSOR_CHARS_MAX].encode("ascii"))
        key: _Key = msgspec.json.decode(data, type=shape)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise InvalidField("'after' is the 'next' of the page before, with the same query.", param="after") from None
    return key


def write_cursor(key: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


class PageSelection(Generic[_Key, _Item]):
    """The first items behind a cursor, in order of their keys, which are unique. Holds a few pages at most."""

    def __init__(self, *, after: _Key | None, limit: int) -> None:
        self._after = after
        self._count = limit + 1
        self._found: list[tuple[_Key, _Item]] = []

    def add(self, key: _Key, item: _Item) -> None:
        if self._after is None or key > self._after:
            self._found.append((key, item))
            if len(self._found) >= 4 * self._count:
                self._found = self.items()

    def items(self) -> list[tuple[_Key, _Item]]:
        """One more than fits on the page, if there is one."""
        return nsmallest(self._count, self._found, key=lambda found: found[0])


async def take_turns(items: Iterable[_Item], visit: Callable[[_Item], int]) -> None:
    """Visit each item, some per tick of the event loop. `visit` returns how many units of work it was."""
    steps = 0
    for item in items:
        steps += visit(item)
        if steps >= STEPS_PER_TICK:
            steps = 0
            await asyncio.sleep(0)
