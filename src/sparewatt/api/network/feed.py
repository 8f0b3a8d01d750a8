"""GET /v1/feed: the live feed as server-sent events. Public: `telemetry/feed/public.py` has what it may show.

A browser that reconnects names the last frame that it has by Last-Event-ID, and gets the frames after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from sparewatt.accounts.public_rate_limits import client_network
from sparewatt.api.endpoint import endpoint
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import NoCapacity
from sparewatt.edge.exchange import STREAM_HEADERS
from sparewatt.edge.middleware import context_of
from sparewatt.telemetry.feed.live_feed import LiveFeed

RETRY_MS = 2_000
"""After this long a browser that lost its connection reconnects."""
FEED_VIEWERS_MAX = 1_000
"""Viewers of one process at once; each holds a socket and nothing else."""
FEED_VIEWERS_PER_ADDRESS_MAX = 50
"""Of those, from one address: an office behind NAT, or a wall of screens."""
FEED_WRITE_S = 20.0
"""A viewer that takes nothing for this long is disconnected."""


@dataclass(slots=True, kw_only=True)
class FeedEndpoints:
    live: LiveFeed
    drain: DrainState
    _viewers: Counter[str] = field(default_factory=Counter, init=False)
    """By address."""

    @endpoint("GET /v1/feed", access="public", streams=True)
    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Stream the network as it changes, as server-sent events."""
        with self._viewer(client_network(context_of(request).address)):
            response = web.StreamResponse(headers=STREAM_HEADERS)
            await response.prepare(request)
            try:
                await self._send_frames(response, last_id=request.headers.get("last-event-id", ""))
            except (TimeoutError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
        return response

    @contextmanager
    def _viewer(self, address: str) -> Iterator[None]:
        """Count a viewer while it watches. Raises NoCapacity."""
        viewers = self._viewers
        if self.live.viewers >= FEED_VIEWERS_MAX or viewers[address] >= FEED_VIEWERS_PER_ADDRESS_MAX:
            raise NoCapacity("Too many watch already. Close another window, or try again later.", retry_after_s=30)
        viewers[address] += 1
        self.live.enter()
        try:
            yield
        finally:
            self.live.leave()
            viewers[address] -= 1
            if not viewers[address]:
                del viewers[address]

    async def _send_frames(self, response: web.StreamResponse, *, last_id: str) -> None:
        await _write(response, b"retry: %d\n\n" % RETRY_MS)
        number = self.live.frames.number_of(last_id)
        while not self.drain.is_draining:
            number = await self._catch_up(response, number)
            await self.live.wait()

    async def _catch_up(self, response: web.StreamResponse, number: int | None) -> int:
        """Send the frames after this one, or a snapshot; returns the number of the last frame sent."""
        frames = None if number is None else self.live.frames.after(number)
        frames = [self.live.snapshot()] if frames is None else frames
        if frames:
            await _write(response, b"".join(frame.data for frame in frames))
        return frames[-1].number if frames else number or 0


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(FEED_WRITE_S):
        await response.write(data)
