"""A response while it is written: from the chunks in an errand's sink to events, to its end, to its shelf."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sparewatt.core.clock import Clock
from sparewatt.core.errors import JobFailed, StoreUnavailable
from sparewatt.core.ids import KeyId
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.responses.event_log import EventLog
from sparewatt.gateway.openai.responses.shelf import Shelf
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.protocol.responses.chunks import ChunkReader, read_chunk
from sparewatt.protocol.responses.events import DONE, as_sse
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.translate import Translator

Send = Callable[[list[bytes]], Awaitable[None]]


class Live:
    """Implements LiveResponse."""

    def __init__(
        self, errand: Errand[BufferedSink], translator: Translator, *, key_id: KeyId, shelf: Shelf | None, clock: Clock
    ) -> None:
        self.errand = errand
        self.key_id = key_id
        self.has_begun = False
        """Whether the client has heard of it."""
        self.over = asyncio.Event()
        self.log: EventLog | None = None
        """What who comes later can read; only of streams in the background."""
        self._translator = translator
        self._shelf = shelf
        self._clock = clock
        self._cancelled = False

    @property
    def response(self) -> Json:
        return self._translator.response

    @property
    def is_stored(self) -> bool:
        return self._shelf is not None

    def cancel(self) -> None:
        """Somebody wants no more of it. What was written so far is kept."""
        if not self.over.is_set():
            self._cancelled = True
            self.errand.cancel()
            self.errand.sink.finish()

    async def begin(self, send: Send) -> None:
        await send([as_sse(event) for event in self._translator.begin()])

    async def stream(self, send: Send) -> None:
        """Translate chunk by chunk, to the end."""
        reader, sink = ChunkReader(), self.errand.sink
        while (data := await sink.take()) is not None:
            events = [as_sse(event) for chunk in reader.feed(data) for event in self._translator.feed(chunk)]
            if events:
                await send(events)
            self.errand.consumed(len(data))
        events = [as_sse(event) for event in await self._settle()]
        await send(events if self._translator.failure is not None else [*events, DONE])

    async def whole(self) -> Json:
        """Raises JobFailed if the node's reply was none."""
        chunk = read_chunk(await self.errand.sink.take_all())
        if chunk is not None:
            for _ in self._translator.feed(chunk):
                """Events are for streams."""
        elif not self._cancelled:
            raise JobFailed("The node's answer was not understood.")
        await self._settle()
        return self.response

    async def abandon(self) -> None:
        """The client left before the end."""
        if not self.over.is_set():
            self._cancelled = True
            await self._settle()

    async def _settle(self) -> list[Json]:
        translator, error = self._translator, self.errand.sink.error
        if self._cancelled:
            events = translator.cancel()
        elif error is not None:
            events = translator.fail(error)
        else:
            events = translator.settle(now=int(self._clock.unix_s()))
        await self._keep()
        self.over.set()
        return events + translator.end()

    async def _keep(self) -> None:
        """An answer that could not be stored is still an answer, and says so."""
        if self._shelf is None:
            return
        try:
            is_kept = await self._shelf.finish(self.response)
        except StoreUnavailable:
            is_kept = False
        if not is_kept:
            self._shelf = None
            self._translator.response = self.response | {"store": False}
