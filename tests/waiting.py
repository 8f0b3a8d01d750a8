"""Waiting in a test: look again and again, never longer than a ceiling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CEILING_S = 20.0
"""After this long a test that waits for something gives up."""


async def until(holds: Callable[[], object]) -> None:
    """Give other tasks their turn until `holds` does."""
    async with asyncio.timeout(CEILING_S):
        while not holds():  # noqa: ASYNC110 (what is polled is a plain value, without an event to await)
            await asyncio.sleep(0.001)


async def turns(n: int = 20) -> None:
    """Let everything that is ready run. For showing that something does not happen."""
    for _ in range(n):
        await asyncio.sleep(0)
