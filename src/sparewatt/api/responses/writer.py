"""A response while it is written: chunks of a chat become events, and at the end the response is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.errors import JobFailed
from sparewatt.core.ids import KeyId
from sparewatt.inference.dispatch.buffered_sink import BufferedSink
from sparewatt.inference.responses.conversations import ConversationAddition
from sparewatt.inference.responses.event_log import EventLog
from sparewatt.inference.responses.record import ResponseRecord
from sparewatt.inference.service import Submission
from sparewatt.protocol.responses.chat_chunks import ChunkReader, read_chunk
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.translator import ResponseTranslator

SendEvents = Callable[[list[Json]], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class ResponseWriter:
    """Implements LiveResponse."""

    submission: Submission[BufferedSink]
    translator: ResponseTranslator
    key_id: KeyId
    record: ResponseRecord | None
    """Where it is kept; None if it is not."""
    addition: ConversationAddition | None
    """What the conversation gets that it belongs to."""
    clock: Clock
    has_begun: bool = False
    """Whether the client knows of it. One that has not begun is dropped without a trace."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    log: EventLog | None = None
    _is_cancelled: bool = False

    @property
    def response(self) -> Json:
        return self.translator.response

    @property
    def is_kept(self) -> bool:
        return self.record is not None

    @property
    def has_row(self) -> bool:
        return self.record is not None and self.record.has_row

    def cancel(self) -> None:
        """What was written so far is stored."""
        if not self.over.is_set():
            self._is_cancelled = True
            self.submission.cancel()
            self.submission.sink.finish()

    def forget(self) -> None:
        """Its client has deleted it: it is not kept, and stops."""
        self.record = None
        self.cancel()

    async def begin(self, send: SendEvents) -> None:
        await send(self.translator.begin())

    async def stream(self, send: SendEvents) -> None:
        """Translate chunk by chunk, to the end."""
        reader, sink = ChunkReader(), self.submission.sink
        while (data := await sink.take()) is not None:
            events = [event for chunk in reader.feed(data) for event in self.translator.feed(chunk)]
            if events:
                await send(events)
            self.submission.consumed(len(data))
        await send(await self._finish())

    async def whole(self) -> Json:
        """Translate a reply in one piece. Raises JobFailed if it cannot be read."""
        chunk = read_chunk(await self.submission.sink.take_all())
        if chunk is not None:
            for _ in self.translator.feed(chunk):
                """Events are for streams."""
        elif not self._is_cancelled:
            raise JobFailed("The node's answer was not understood: it is no chat completion. Try again.")
        await self._finish()
        return self.response

    async def abandon(self) -> None:
        """The client left before the end."""
        if not self.over.is_set():
            self._is_cancelled = True
            await self._finish()

    async def _finish(self) -> list[Json]:
        """Returns the last events."""
        translator, error = self.translator, self.submission.sink.error
        if self._is_cancelled:
            events = translator.cancel()
        elif error is not None:
            events = translator.fail(error)
        else:
            events = translator.finish(now=int(self.clock.unix_s()))
        await self._store()
        self.over.set()
        return events + translator.final_events()

    async def _store(self) -> None:
        """A response that could not be stored is still an answer: its `store` becomes false."""
        if self.addition is not None:
            await self.addition.add(self.response)
        if self.record is None or not await self.record.finish(self.response):
            self.record = None
            self.translator.response = self.response | {"store": False}
