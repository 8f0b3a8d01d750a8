"""GET /v1/feed: the live feed as server-sent events. No login: `telemetry/feed/public.py` says what strangers may see.

A browser that reconnects names the last frame that it has by Last-Event-ID, and gets the frames after it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from sparewatt.accounts.public_rate_limits import client_network
from sparewatt.api.endpoint import get
from sparewatt.core.drain import DrainState
from sparewatt.core.errors import NoCapacity
from sparewatt.core.limits import FEED_VIEWERS_MAX, FEED_VIEWERS_PER_ADDRESS_MAX, FEED_WRITE_S
from sparewatt.edge.middleware import context_of
from sparewatt.telemetry.feed.live_feed import LiveFeed

_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
RETRY_MS = 2_000


class FeedEndpoints:
    def __init__(self, *, live: LiveFeed, drain: DrainState) -> None:
        self._live = live
        self._drain = drain
        self._audience: Counter[str] = Counter()
        """Viewers by address."""

    @get("/v1/feed", is_public=True, streams=True)
    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Stream the network as it changes, as server-sent events."""
        with self._viewer(client_network(context_of(request).address)):
            response = web.StreamResponse(headers=_HEADERS)
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
        audience = self._audience
        if self._live.viewers >= FEED_VIEWERS_MAX or audience[address] >= FEED_VIEWERS_PER_ADDRESS_MAX:
            raise NoCapacity("Too many watch already. Close another window, or try again later.", retry_after_s=30)
        audience[address] += 1
        self._live.enter()
        try:
            yield
        finally:
            self._live.leave()
            audience[address] -= 1
            if not audience[address]:
                del audience[address]

    async def _send_frames(self, response: web.StreamResponse, *, last_id: str) -> None:
        await _write(response, b"retry: %d\n\n" % RETRY_MS)
        number = self._live.frames.number_of(last_id)
        while not self._drain.is_draining:
            number = await self._catch_up(response, number)
            await self._live.wait()

    async def _catch_up(self, response: web.StreamResponse, number: int | None) -> int:
        """Send the frames after this one, or a snapshot; returns the number of the last frame sent."""
        frames = None if number is None else self._live.frames.after(number)
        frames = [self._live.snapshot()] if frames is None else frames
        if frames:
            await _write(response, b"".join(frame.data for frame in frames))
        return frames[-1].number if frames else number or 0


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(FEED_WRITE_S):
        await response.write(data)
