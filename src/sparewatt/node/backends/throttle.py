"""A speed limit that an owner sets on each answer. Waits are scheduled from the first byte, so they do not drift."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sparewatt.core.clock import Clock, sleep_until


async def throttled(chunks: AsyncIterator[bytes], *, limit_tps: float | None, clock: Clock) -> AsyncIterator[bytes]:
    """Pass chunks on, no faster than `limit_tps` events (tokens) per second."""
    began_s: float | None = None
    lines = 0
    async for chunk in chunks:
        if limit_tps is not None:
            began_s = clock.now_s() if began_s is None else began_s
            lines += chunk.count(b"\n")  # wherever the network cuts, an event is two
            await sleep_until(clock, began_s + lines / 2 / limit_tps)
        yield chunk
