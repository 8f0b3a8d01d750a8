"""The reply to a request to `/v1/messages`, from the bytes of a chat's reply to those that its client gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.protocol.anthropic.errors import anthropic_error
from sparewatt.protocol.anthropic.request import Json
from sparewatt.protocol.anthropic.translator import MessageTranslator
from sparewatt.protocol.responses.chat_chunks import ChunkReader, read_chunk
from sparewatt.protocol.responses.events import as_sse
from sparewatt.protocol.shaped_error import ShapedError

NOT_A_CHAT = "The node's answer was not understood: it is no chat completion. Try again."


class AnthropicReply:
    """Implements TranslatedReply."""

    content_type = "text/event-stream"
    keep_alive = as_sse({"type": "ping"})

    def __init__(
        self, translator: MessageTranslator, *, request_id: str, prompt_tokens: int = 0, max_tokens: int = 0
    ) -> None:
        """`prompt_tokens`: an estimate, for the text of an overflow."""
        self._translator = translator
        self._reader = ChunkReader()
        self._overflow: dict[str, Any] = {
            "request_id": request_id,
            "prompt_tokens": prompt_tokens,
            "max_tokens": max_tokens,
        }

    def begin(self) -> bytes:
        return _events(self._translator.begin())

    def feed(self, data: bytes) -> bytes:
        return _events(event for chunk in self._reader.feed(data) for event in self._translator.feed(chunk))

    def finish(self) -> bytes:
        failure = self._translator.failure
        return _events(self._translator.finish()) if failure is None else self.fail(failure)

    def fail(self, error: SparewattError) -> bytes:
        return as_sse(self.refusal(error).body)

    def whole(self, body: bytes) -> bytes:
        """Raises JobFailed."""
        chunk = read_chunk(body)
        if chunk is None:
            raise JobFailed(NOT_A_CHAT)
        for _ in self._translator.feed(chunk):
            """Events are for streams."""
        self._translator.finish()
        return msgspec.json.encode(self._translator.whole())

    def refusal(self, error: SparewattError) -> ShapedError:
        return anthropic_error(error, **self._overflow)


def _events(events: Iterable[Json]) -> bytes:
    return b"".join(as_sse(event) for event in events)
