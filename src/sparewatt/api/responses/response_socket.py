"""One client's WebSocket for responses: messages come in, and are answered one at a time, for an hour at most.

It knows nothing of responses but that one may be cancelled while it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import msgspec
from aiohttp import WSMsgType, web

from sparewatt.core.errors import BadRequest, SocketLifeOver
from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S
from sparewatt.inference.responses.registry import LiveResponse
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.socket_events import error_event, read_event

SOCKET_LIFE_S = 3600.0
"""The specification's, and how long anything that is not stored may be remembered."""
_encode = msgspec.json.Encoder().encode

Answer = Callable[[str], Awaitable[None]]


class ResponseSocket:
    def __init__(self, ws: web.WebSocketResponse) -> None:
        self._ws = ws
        self._messages: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        """One waits while another is answered; then the socket is not read."""
        self._running: LiveResponse | None = None
        self._wrote_s = monotonic()

    async def serve(self, answer: Answer) -> None:
        """Until the client leaves, which ends what is being written, or the socket's time is over."""
        loop = asyncio.get_running_loop()
        answering = loop.create_task(self._answer_all(answer))
        others = [loop.create_task(self._read()), loop.create_task(self._keep_alive())]
        try:
            await asyncio.wait([answering, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, *others):
                task.cancel()
            await asyncio.wait([answering, *others])
        if not answering.cancelled():
            answering.result()

    async def send(self, events: list[Json]) -> None:
        """After a terminal event nothing follows here: an error after it would be taken for the next answer's."""
        is_terminal = any(event["type"] == "response.failed" for event in events)
        for event in events:
            if not (is_terminal and event["type"] == "error"):
                self._wrote_s = monotonic()
                async with asyncio.timeout(CLIENT_WRITE_S):
                    await self._ws.send_str(_encode(event).decode())

    @contextmanager
    def writing(self, live: LiveResponse) -> Iterator[None]:
        """A message can cancel it meanwhile."""
        self._running = live
        try:
            yield
        finally:
            self._running = None

    async def _answer_all(self, answer: Answer) -> None:
        ends_s = monotonic() + SOCKET_LIFE_S
        while True:
            try:
                async with asyncio.timeout(max(0.0, ends_s - monotonic())):
                    text = await self._messages.get()
            except TimeoutError:
                limit = SocketLifeOver("A WebSocket is open for 60 minutes at most. Open a new one.")
                await self.send([error_event(limit)])
                return
            await answer(text)

    async def _read(self) -> None:
        """Returns when the client has left."""
        while True:
            message = await self._ws.receive()
            if message.type is not WSMsgType.TEXT:
                return
            if not self._cancels(message.data):
                await self._messages.put(message.data)

    def _cancels(self, text: str) -> bool:
        """Whether it is a cancellation of what is being written; that is not answered but by the response's end."""
        try:
            event = read_event(text)
        except BadRequest:
            return False
        live = self._running
        if event.type != "response.cancel" or live is None or event.response_id not in (None, live.response["id"]):
            return False
        live.cancel()
        return True

    async def _keep_alive(self) -> None:
        """A ping if nothing was sent for a while, so that no proxy takes the connection for dead."""
        while True:
            await asyncio.sleep(max(0.1, KEEP_ALIVE_S - (monotonic() - self._wrote_s)))
            if monotonic() - self._wrote_s >= KEEP_ALIVE_S:
                self._wrote_s = monotonic()
                async with asyncio.timeout(CLIENT_WRITE_S):
                    await self._ws.ping()
