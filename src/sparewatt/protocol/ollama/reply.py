"""Replies in Ollama's shapes, from the bytes of a chat's reply: one JSON object, or a stream of one per line.

Durations are measured at the gateway: until the first piece, and from there to the last. What a node took to load the
model is part of the first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec

from sparewatt.core.errors import JobFailed, SparewattError
from sparewatt.protocol.ollama.errors import ollama_error
from sparewatt.protocol.ollama.request import Json
from sparewatt.protocol.openai.answer_blocks import AnswerAssembler, BlockEvent
from sparewatt.protocol.openai.chat import UNREADABLE
from sparewatt.protocol.openai.embeddings import read_embeddings
from sparewatt.protocol.responses.chat_chunks import ChunkReader, read_chunk
from sparewatt.protocol.responses.response_object import usage_of
from sparewatt.protocol.shaped_error import ShapedError

ReplyKind = Literal["chat", "generate"]
_NANO = 1_000_000_000
_encode = msgspec.json.Encoder().encode
_vector_decoder = msgspec.json.Decoder(list[float])


class TimeSource(Protocol):
    """Implemented by every `Clock`."""

    def now_s(self) -> float: ...

    def unix_s(self) -> float: ...


def rfc3339(unix_s: float) -> str:
    return dt.datetime.fromtimestamp(unix_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class OllamaReply:
    """Implements TranslatedReply, for `/api/chat` and `/api/generate`."""

    content_type = "application/x-ndjson"

    def __init__(self, kind: ReplyKind, *, model: str, clock: TimeSource, with_thinking: bool = True) -> None:
        """`model`: as the client named it."""
        self._kind = kind
        self._model = model
        self._clock = clock
        self._began_s = clock.now_s()
        self._first_s: float | None = None
        self._reader = ChunkReader()
        self._answer = AnswerAssembler(with_reasoning=with_thinking, call_id=lambda given: given or "")

    @property
    def keep_alive(self) -> bytes:
        """A line without text: clients take every line for JSON."""
        return _line(self._piece())

    def begin(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> bytes:
        events = [event for chunk in self._reader.feed(data) for event in self._answer.feed(chunk)]
        if events and self._first_s is None:
            self._first_s = self._clock.now_s()
        return b"".join(map(_line, self._pieces(events)))

    def finish(self) -> bytes:
        lines = list(self._pieces(list(self._answer.close())))
        try:
            calls, failure = self._calls(), self._answer.failure
        except JobFailed as error:
            calls, failure = [], error
        if failure is not None:
            return self.fail(failure)
        if calls and self._kind == "chat":
            lines.append(self._piece(tool_calls=calls))
        return b"".join(map(_line, [*lines, self._piece() | self._outcome()]))

    def fail(self, error: SparewattError) -> bytes:
        return _line(self.refusal(error).body)

    def loaded(self) -> bytes:
        """The reply to a request without a prompt, by which Ollama's clients load a model before they use it."""
        return _encode(self._piece() | {"done": True, "done_reason": "load"})

    def whole(self, body: bytes) -> bytes:
        """Raises JobFailed."""
        chunk = read_chunk(body)
        if chunk is None:
            raise JobFailed("The node's answer was not understood: it is no chat completion. Try again.")
        list(self._answer.feed(chunk))
        list(self._answer.close())
        thinking, text = (self._text_of(kind) for kind in ("reasoning", "text"))
        calls = self._calls() if self._kind == "chat" else []
        return _encode(self._piece(text, thinking=thinking, tool_calls=calls) | self._outcome())

    def refusal(self, error: SparewattError) -> ShapedError:
        return ollama_error(error)

    # pieces

    def _pieces(self, events: list[BlockEvent]) -> Iterator[Json]:
        """Calls are sent whole, at the end."""
        for kind, _, block, text in events:
            if kind == "write" and block.kind == "text":
                yield self._piece(text)
            elif kind == "write" and block.kind == "reasoning":
                yield self._piece(thinking=text)

    def _piece(self, text: str = "", *, thinking: str = "", tool_calls: list[Json] | None = None) -> Json:
        thought = {"thinking": thinking} if thinking else {}
        calls = {"tool_calls": tool_calls} if tool_calls else {}
        named: Json = {"model": self._model, "created_at": rfc3339(self._clock.unix_s())}
        if self._kind == "generate":
            return named | {"response": text} | thought | {"done": False}
        return named | {"message": {"role": "assistant", "content": text} | thought | calls, "done": False}

    def _text_of(self, kind: str) -> str:
        return "".join(block.text for block in self._answer.blocks if block.kind == kind)

    def _calls(self) -> list[Json]:
        """Raises JobFailed."""
        calls = [block for block in self._answer.complete_blocks() if block.kind == "call"]
        return [{"function": {"index": i, "name": c.name, "arguments": c.arguments()}} for i, c in enumerate(calls)]

    def _outcome(self) -> Json:
        now_s = self._clock.now_s()
        first_s = self._began_s if self._first_s is None else self._first_s
        counts = usage_of(self._answer.usage) or {"input_tokens": 0, "output_tokens": 0}
        return {
            "done": True,
            "done_reason": "length" if self._answer.finish_reason == "length" else "stop",
            "total_duration": round((now_s - self._began_s) * _NANO),
            "load_duration": 0,
            "prompt_eval_count": max(0, counts["input_tokens"]),
            "prompt_eval_duration": round((first_s - self._began_s) * _NANO),
            "eval_count": max(0, counts["output_tokens"]),
            "eval_duration": round((now_s - first_s) * _NANO),
        }


class OllamaEmbedReply:
    """Implements TranslatedReply, for `/api/embed` and, with one vector, `/api/embeddings`. Nothing streams."""

    content_type = "application/json"
    keep_alive = b""

    def __init__(self, *, model: str, clock: TimeSource, is_single: bool = False) -> None:
        self._model = model
        self._clock = clock
        self._began_s = clock.now_s()
        self._is_single = is_single

    def begin(self) -> bytes:
        return b""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""

    def fail(self, error: SparewattError) -> bytes:
        return _line(self.refusal(error).body)

    def whole(self, body: bytes) -> bytes:
        """Raises JobFailed."""
        found = read_embeddings(body)
        try:
            vectors = [_vector_decoder.decode(item.embedding) for item in found.data] if found is not None else []
        except UNREADABLE:
            vectors = []
        if found is None or not vectors:
            raise JobFailed("The node's answer was not understood: it has no vectors. Try again.")
        if self._is_single:
            return _encode({"embedding": vectors[0]})
        took = round((self._clock.now_s() - self._began_s) * _NANO)
        tokens = found.usage.prompt_tokens if found.usage is not None else 0
        counts = {"total_duration": took, "load_duration": 0, "prompt_eval_count": tokens}
        return _encode({"model": self._model, "embeddings": vectors} | counts)

    def refusal(self, error: SparewattError) -> ShapedError:
        return ollama_error(error)


def _line(value: Json) -> bytes:
    return _encode(value) + b"\n"
