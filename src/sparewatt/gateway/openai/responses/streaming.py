"""Writing events to a client: opened late, so that errors can still be HTTP errors, and never silent for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

from sparewatt.core.errors import Internal, SparewattError
from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S
from sparewatt.core.log import Log
from sparewatt.gateway.openai.responses.event_log import EventLog
from sparewatt.gateway.openai.sink import KEEP_ALIVE
from sparewatt.protocol.responses.events import Events, as_sse

_log = Log("sparewatt.gateway")
_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


class EventStream:
    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self._wrote_s = 0.0

    @property
    def response(self) -> web.StreamResponse:
        if self._response is None:
            raise RuntimeError("the stream was not opened")
        return self._response

    async def is_silent(self, news: Awaitable[None]) -> bool:
        """Whether the news take so long that the client should hear something first."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await news
        except TimeoutError:
            return True
        return False

    @asynccontextmanager
    async def opened(self, headers: Mapping[str, str]) -> AsyncIterator[None]:
        """Open while the block runs. A client that is gone or stuck is cut off."""
        self._response = web.StreamResponse(headers={**headers, **_HEADERS})
        await self._response.prepare(self._request)
        self._wrote_s = self._now_s()
        waker = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            async with self._told():
                yield
            async with asyncio.timeout(CLIENT_WRITE_S):
                await self._response.write_eof()
        except (TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
        finally:
            waker.cancel()

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """Whatever goes wrong is the last event: a stream that has begun must not just end."""
        try:
            yield
        except (TimeoutError, ConnectionError):
            raise  # there is nobody to tell
        except SparewattError as error:
            await self._say(error)
        except Exception:  # noqa: BLE001 (a process boundary: the reply has begun)
            _log.crash("response_stream_crashed")
            await self._say(Internal("Something broke here. What came before is incomplete."))

    async def send(self, events: list[bytes]) -> None:
        self._wrote_s = self._now_s()
        async with asyncio.timeout(CLIENT_WRITE_S):
            await self.response.write(b"".join(events))

    async def _say(self, error: SparewattError) -> None:
        await self.send([as_sse(Events().error(error))])

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(max(0.1, KEEP_ALIVE_S - (self._now_s() - self._wrote_s)))
            if self._now_s() - self._wrote_s >= KEEP_ALIVE_S:
                try:
                    await self.send([KEEP_ALIVE])
                except (TimeoutError, ConnectionError):
                    return  # who sends the next event finds out

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


async def send_log(
    request: web.Request, log: EventLog, headers: Mapping[str, str], *, after: int = -1
) -> web.StreamResponse:
    """What is there, and what comes. When this client goes, the answer goes on."""
    stream = EventStream(request)
    async with stream.opened(headers):
        async for event in log.follow(after=after):
            await stream.send([event])
    return stream.response
