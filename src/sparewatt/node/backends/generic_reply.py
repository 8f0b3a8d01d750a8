"""A model server's reply to a generic request (`generic_tools`), written as the reply to the client's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from sparewatt.core.limits import REPLY_BODY_BYTES_MAX, SSE_EVENT_BYTES_MAX
from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.node.backends.generic_tools import GenericToolReader, Json, whole_message
from sparewatt.node.backends.reply_stream import collect

_DATA, _END = b"data: ", b"\n\n"
CHOICES_MAX = 128
"""Of one reply: OpenAI's bound."""


async def generic_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A stream. Raises BadBackendReply for an event without end."""
    reply, rest = _StreamedReply(), b""
    async for chunk in chunks:
        *events, rest = (rest + chunk).split(_END)
        if len(rest) > SSE_EVENT_BYTES_MAX:
            raise BadBackendReply("the model server streams an event without end")
        if written := b"".join(reply.rewrite(event) for event in events):
            yield written
    if rest:
        yield rest


async def generic_whole(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A reply in one piece. Raises BadBackendReply if it is too long."""
    body = await collect(chunks, bytes_max=REPLY_BODY_BYTES_MAX)
    try:
        reply: Json = msgspec.json.decode(body, type=dict[str, Any])
        yield msgspec.json.encode(reply | {"choices": [_whole_choice(each, reply) for each in reply["choices"]]})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
        yield body  # the gateway refuses it


def _whole_choice(choice: Json, reply: Json) -> Json:
    message = whole_message(choice["message"], _call_id(reply, choice))
    finish = choice.get("finish_reason")
    return choice | {"message": message, "finish_reason": _finish(finish, has_called="tool_calls" in message)}


def _finish(reason: object, *, has_called: bool) -> object:
    return "tool_calls" if reason == "stop" and has_called else reason


def _call_id(reply: Json, choice: Json) -> str:
    """Made of the reply's own id: no two answers of a server have the same."""
    return f"call_{str(reply.get('id', '')).rpartition('-')[2]}_{choice.get('index', 0)}"


class _StreamedReply:
    def __init__(self) -> None:
        self._readers: dict[int, GenericToolReader] = {}

    def rewrite(self, event: bytes) -> bytes:
        """What an event becomes: itself, several, or nothing yet."""
        if not event.startswith(_DATA + b"{"):
            return event + _END
        try:
            chunk: Json = msgspec.json.decode(event[len(_DATA) :], type=dict[str, Any])
            choices = chunk["choices"]
            written = [each for choice in choices for each in self._read(choice, chunk)] if choices else [None]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            return event + _END
        return b"".join(_event(chunk, choice) for choice in written)

    def _read(self, choice: Json, chunk: Json) -> list[Json]:
        """The choices of the chunks that one of a chunk becomes."""
        delta, finish = choice.get("delta") or {}, choice.get("finish_reason")
        reader = self._reader(choice, chunk)
        deltas = reader.feed(delta["content"]) if delta.get("content") else []
        rest = {name: value for name, value in delta.items() if name != "content" and value is not None}
        deltas = [rest, *deltas] if rest else deltas
        written = [choice | {"delta": each, "finish_reason": None} for each in deltas]
        if finish is not None:
            written += [choice | {"delta": each, "finish_reason": None} for each in reader.end()]
            written.append(choice | {"delta": {}, "finish_reason": _finish(finish, has_called=reader.has_called)})
        return written

    def _reader(self, choice: Json, chunk: Json) -> GenericToolReader:
        index = int(choice.get("index", 0))
        if index not in self._readers:
            if len(self._readers) >= CHOICES_MAX:
                raise BadBackendReply("the model server streams more answers than it was asked for")
            self._readers[index] = GenericToolReader(_call_id(chunk, choice))
        return self._readers[index]


def _event(chunk: Json, choice: Json | None) -> bytes:
    return _DATA + msgspec.json.encode(chunk | {"choices": [] if choice is None else [choice]}) + _END
