"""Server-sent events to one client. The stream is opened late, so that an early error can still be an HTTP error.

If nothing was sent for `KEEP_ALIVE_S`, the stream gets an SSE comment as a keep-alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from aiohttp import web

from sparewatt.api.responses.writer import ResponseWriter
from sparewatt.core.errors import InternalError, SparewattError
from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S
from sparewatt.core.log import Logger
from sparewatt.edge.exchange import STREAM_HEADERS
from sparewatt.inference.dispatch.buffered_sink import KEEP_ALIVE
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.protocol.responses.events import DONE, ResponseEventWriter, as_sse
from sparewatt.protocol.responses.request import Json

SendBytes = Callable[[list[bytes]], Awaitable[None]]
_log = Logger("sparewatt.gateway")


ErrorEvent = Callable[[SparewattError], bytes]


def _response_error(error: SparewattError) -> bytes:
    return as_sse(ResponseEventWriter().error(error))


class EventStream:
    def __init__(
        self,
        request: web.Request,
        headers: Mapping[str, str],
        *,
        content_type: str = "text/event-stream",
        keep_alive: bytes = KEEP_ALIVE,
        error_event: ErrorEvent = _response_error,
    ) -> None:
        """`keep_alive`, `error_event`: what a silent stream gets, and a broken one at its end."""
        self.response = web.StreamResponse(headers={**headers, **STREAM_HEADERS, "content-type": content_type})
        self._request = request
        self._keep_alive_event = keep_alive
        self._error_event = error_event
        self._wrote_s = monotonic()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open while the block runs. A client that left, or does not read, is disconnected."""
        await self.response.prepare(self._request)
        keep_alive = asyncio.get_running_loop().create_task(self._keep_alive())
        try:
            async with self._errors_as_events():
                yield
            async with asyncio.timeout(CLIENT_WRITE_S):
                await self.response.write_eof()
        except (TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
        finally:
            keep_alive.cancel()

    @asynccontextmanager
    async def _errors_as_events(self) -> AsyncIterator[None]:
        """An exception becomes the last event: a stream that has begun must not end without saying why."""
        try:
            yield
        except (TimeoutError, ConnectionError):
            raise  # the client is gone
        except SparewattError as error:
            await self._send_error(error)
        except Exception as error:  # noqa: BLE001 (a process boundary: the reply has begun)
            _log.crash("response_stream_crashed", error)
            await self._send_error(InternalError("Something broke here. What came before is incomplete."))

    async def send(self, events: list[bytes]) -> None:
        self._wrote_s = monotonic()
        async with asyncio.timeout(CLIENT_WRITE_S):
            await self.response.write(b"".join(events))

    async def _send_error(self, error: SparewattError) -> None:
        await self.send([self._error_event(error)])

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(max(0.1, KEEP_ALIVE_S - (monotonic() - self._wrote_s)))
            if monotonic() - self._wrote_s >= KEEP_ALIVE_S:
                try:
                    await self.send([self._keep_alive_event])
                except (TimeoutError, ConnectionError):
                    return  # the next event fails likewise, and ends the stream


async def write_sse(writer: ResponseWriter, send: SendBytes) -> None:
    """All events of a response; the end mark only if it did not fail."""

    async def send_encoded(events: list[Json]) -> None:
        await send([as_sse(event) for event in events])

    await writer.begin(send_encoded)
    await writer.stream(send_encoded)
    if writer.translator.failure is None:
        await send([DONE])


async def is_overdue(beginning: Awaitable[None]) -> bool:
    """Wait for the beginning of the answer; True if it takes so long that the stream should be opened before."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await beginning
    except TimeoutError:
        return True
    return False


async def send_log(
    request: web.Request, log: EventLog, headers: Mapping[str, str], *, after: int = -1
) -> web.StreamResponse:
    """Stream the events that are there, and those that come. If this client leaves, the response is still written."""
    stream = EventStream(request, headers)
    async with stream.opened():
        async for event in log.follow(after=after):
            await stream.send([event])
    return stream.response
