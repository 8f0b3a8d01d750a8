"""Looking at very many nodes without blocking a request: some per tick of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sparewatt.inference.matcher.node_row import NodeRow

ROWS_PER_TICK = 100
"""About a millisecond."""


async def in_batches(rows: Sequence[NodeRow], look: Callable[[NodeRow], None]) -> None:
    for at, row in enumerate(rows, start=1):
        look(row)
        if at % ROWS_PER_TICK == 0:
            await asyncio.sleep(0)
