"""Chunks and whole replies of a chat, as far as a response is made from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.protocol.openai.chat import UNREADABLE
from sparewatt.protocol.responses.request import Json


class FunctionCallDelta(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class ToolCallDelta(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: FunctionCallDelta | None = None


class StreamDelta(Struct, frozen=True):
    """A piece of a message, or a whole one. Servers have two names for reasoning."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallDelta] | None = None

    @property
    def reasoning_text(self) -> str:
        return self.reasoning_content or self.reasoning or ""

    @property
    def text(self) -> str:
        return self.content or self.refusal or ""


class StreamLogprobs(Struct, frozen=True):
    content: list[Json] | None = None


class StreamChoice(Struct, frozen=True):
    delta: StreamDelta | None = None
    message: StreamDelta | None = None
    finish_reason: str | None = None
    logprobs: StreamLogprobs | None = None
    text: str | None = None
    """The output of a text completion, which has neither."""
    stop_reason: Any = None
    """The stop text that ended the answer, where the server tells."""

    @property
    def content_delta(self) -> StreamDelta:
        return self.delta or self.message or StreamDelta(content=self.text)


class StreamChunk(Struct, frozen=True):
    choices: list[StreamChoice] | None = None
    usage: Json | None = None
    error: Any = None

    def failure(self) -> SparewattError | None:
        """The error object of a stream, as an error."""
        if self.error is None:
            return None
        message = self.error.get("message") if isinstance(self.error, dict) else None
        return JobFailed(message if isinstance(message, str) else "The answer broke off.")


_decoder = msgspec.json.Decoder(StreamChunk)
_DATA, _END = b"data:", b"[DONE]"


def read_chunk(data: bytes) -> StreamChunk | None:
    """A chunk or a whole reply; None if it is neither."""
    try:
        return _decoder.decode(data)
    except UNREADABLE:
        return None


class ChunkReader:
    """Decodes an event stream that arrives in arbitrary pieces. It skips comments and the end mark."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[StreamChunk]:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            data_lines = b"\n".join(line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA))
            if data_lines and data_lines != _END and (chunk := read_chunk(data_lines)) is not None:
                yield chunk
