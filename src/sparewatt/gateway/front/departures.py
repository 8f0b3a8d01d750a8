"""Requests that came in one turn of the event loop set out together, stage by stage.

Under load several come in every turn. All of them are read and paid for, then all are matched and sent: so the code of
a stage stays in the processor's caches from one request to the next, and replies that came in the same turn are not
held up in between. A request that comes alone sets out at the end of its turn, which is at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from sparewatt.core.limits import DEPARTURES_TOGETHER_MAX


class Traveller(Protocol):
    """A request whose body is here. Neither stage raises."""

    def prepare(self, body: bytes) -> None: ...

    def depart(self) -> None:
        """Called once, after `prepare`, whatever came of that."""
        ...


class Departures:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Traveller, bytes]] = []

    def add(self, traveller: Traveller, body: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._leave)
        self._waiting.append((traveller, body))

    def _leave(self) -> None:
        going, self._waiting = self._waiting[:DEPARTURES_TOGETHER_MAX], self._waiting[DEPARTURES_TOGETHER_MAX:]
        if self._waiting:
            self._loop.call_soon(self._leave)
        for traveller, body in going:
            traveller.prepare(body)
        for traveller, _ in going:
            traveller.depart()
