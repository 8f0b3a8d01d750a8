"""Looking at very many nodes without holding up a request: a handful per turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sparewatt.inference.matcher.model import NodeRow

ROWS_AT_ONCE = 100
"""Nodes looked at in one turn: about a millisecond."""


async def in_turns(rows: Sequence[NodeRow], look: Callable[[NodeRow], None]) -> None:
    for at, row in enumerate(rows, start=1):
        look(row)
        if at % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
