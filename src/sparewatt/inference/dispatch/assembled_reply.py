"""A reply that the client wants in one piece and its node streams, so that its first token and its pauses are seen."""

from __future__ import annotations

from sparewatt.core.errors import ProtocolViolation
from sparewatt.inference.dispatch.reply import Biller, EventSplitter, ReplyBroken, WholeReply, event_data
from sparewatt.protocol.openai.stream_accumulator import BrokenStream, StreamAccumulator


class AssembledReply(WholeReply):
    """`started`: something of the answer has come."""

    __slots__ = ("_accumulator", "_splitter", "chunks_seen")

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
                if (content := event_data(event)) is not None:
                    self._accumulator.add(content)
                    self.chunks_seen += 1
        except (BrokenStream, ProtocolViolation) as error:
            raise ReplyBroken(str(error)) from None

    def end(self) -> bytes:
        try:
            super().feed(self._accumulator.body())
        except BrokenStream as error:
            raise ReplyBroken(str(error)) from None
        return super().end()
