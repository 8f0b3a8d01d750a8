"""GET /v1/feed: the live feed as server-sent events. No login: what it shows is for everybody (see `public`).

A browser that comes back says by Last-Event-ID what it has, and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from sparewatt.accounts.doors import network_of
from sparewatt.core.errors import NoCapacity
from sparewatt.core.limits import FEED_VIEWERS_MAX, FEED_VIEWERS_PER_ADDRESS_MAX, FEED_WRITE_S
from sparewatt.gateway.feeds.live import LiveFeed
from sparewatt.gateway.http import address_of
from sparewatt.gateway.services import Services, services_of

_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
RETRY_MS = 2_000
AUDIENCE = web.AppKey("audience", Counter[str])
"""Viewers by address."""


async def watch(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    with _seat(request, services):
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        try:
            await _show(response, services, last_id=request.headers.get("last-event-id", ""))
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
    return response


@contextmanager
def _seat(request: web.Request, services: Services) -> Iterator[None]:
    audience, address = request.app[AUDIENCE], network_of(address_of(request))
    if services.live.viewers >= FEED_VIEWERS_MAX or audience[address] >= FEED_VIEWERS_PER_ADDRESS_MAX:
        raise NoCapacity("Too many watch already. Close another window, or try again later.", retry_after_s=30)
    audience[address] += 1
    services.live.enter()
    try:
        yield
    finally:
        services.live.leave()
        audience[address] -= 1
        if not audience[address]:
            del audience[address]


async def _show(response: web.StreamResponse, services: Services, *, last_id: str) -> None:
    live = services.live
    await _write(response, b"retry: %d\n\n" % RETRY_MS)
    number = live.frames.number_of(last_id)
    while not services.stopping:
        number = await _catch_up(response, live, number)
        await live.wait()


async def _catch_up(response: web.StreamResponse, live: LiveFeed, number: int | None) -> int:
    """Send what came after a frame, or everything; returns the number of the last frame sent."""
    frames = None if number is None else live.frames.after(number)
    frames = [live.whole()] if frames is None else frames
    if frames:
        await _write(response, b"".join(frame.data for frame in frames))
    return frames[-1].number if frames else number or 0


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(FEED_WRITE_S):
        await response.write(data)
