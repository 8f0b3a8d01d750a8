"""A reply that the client wants in one piece and its node streams, so that its first token and its pauses are seen.

Most events of a stream differ in their text only: it is cut out of them, as on the direct path, and decoded once.
"""

from __future__ import annotations

from sparewatt.core.errors import ProtocolViolation
from sparewatt.core.limits import REPLY_BODY_BYTES_MAX
from sparewatt.inference.dispatch.reply import (
    Biller,
    ChunkShape,
    ErrorReported,
    EventSplitter,
    ReplyBroken,
    WholeReply,
    event_data,
    shape_of,
)
from sparewatt.protocol.openai.chat import read_chunk
from sparewatt.protocol.openai.stream_accumulator import BrokenStream, ErrorEvent, StreamAccumulator

SHAPES_MAX = 8
"""Times that an answer's events are looked at for what they have in common: some servers number them."""


class AssembledReply(WholeReply):
    """`started`: something of the answer has come."""

    __slots__ = ("_accumulator", "_shape", "_shapes_left", "_splitter", "_text", "chunks_seen")

    def __init__(
        self,
        *,
        prompts: int = 1,
        bill: Biller | None = None,
        reply_model: bytes | None = None,
        answers: int = 0,
    ) -> None:
        super().__init__(bill=bill, reply_model=reply_model, answers=answers)
        self._splitter = EventSplitter()
        self._accumulator = StreamAccumulator(prompts=prompts)
        self._shape: ChunkShape | None = None
        """Of the last event that was read, if it has one."""
        self._shapes_left = SHAPES_MAX
        self._text = bytearray()
        """Of events of that shape, as it stands in JSON."""
        self.chunks_seen = 0

    @property
    def started(self) -> bool:
        return self._accumulator.has_output

    def unstreamed(self) -> WholeReply:
        """For a server that answers in one piece all the same."""
        return WholeReply(bill=self._bill, reply_model=self._reply_model, answers=self._answers)

    def feed(self, data: bytes) -> None:
        try:
            for event in self._splitter.feed(data):
                self._take(event)
        except (BrokenStream, ProtocolViolation) as error:
            raise ReplyBroken(str(error)) from None

    def _take(self, event: bytes) -> None:
        text = self._shape.text_of(event) if self._shape is not None else None
        if text is not None and _is_utf8(text):
            self._text += text
            self.chunks_seen += 1
            if len(self._text) > REPLY_BODY_BYTES_MAX:
                self._add_text()
            return
        self._add_text()
        content = event_data(event)
        if content is None:
            return
        try:
            self._accumulator.add(content)
        except ErrorEvent:
            raise ErrorReported(content) from None
        self.chunks_seen += 1
        self._note_shape(event, content)

    def _note_shape(self, event: bytes, content: bytes) -> None:
        self._shape = None
        if self._shapes_left:
            self._shapes_left -= 1
            chunk = read_chunk(content)
            self._shape = shape_of(event, chunk) if chunk is not None else None

    def _add_text(self) -> None:
        if self._text and self._shape is not None:
            self._accumulator.add_text(self._shape.name, self._text)
            self._text.clear()

    def end(self) -> bytes:
        try:
            self._add_text()
            super().feed(self._accumulator.body())
        except BrokenStream as error:
            raise ReplyBroken(str(error)) from None
        return super().end()


def _is_utf8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False
