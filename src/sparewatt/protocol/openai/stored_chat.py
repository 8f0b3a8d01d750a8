"""A chat completion as it is stored: put together from its stream, with the request's metadata and messages. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import MIB

Json = dict[str, Any]
_DATA, _END = b"data:", b"[DONE]"
_SAME = ("id", "created", "model", "system_fingerprint", "service_tier")
_decode = msgspec.json.Decoder().decode
CALLS_MAX, CHOICES_MAX = 256, 128
"""Of one answer: a node writes their numbers."""
STORED_STREAM_BYTES_MAX = 16 * MIB
"""Chunks of one answer; a hundred thousand tokens."""


class _Function(Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct, frozen=True):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Logprobs(Struct, frozen=True):
    content: list[Json] | None = None


class _Choice(Struct, frozen=True):
    index: int = 0
    delta: _Delta = _Delta()
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Chunk(Struct, frozen=True):
    id: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    choices: list[_Choice] | None = None
    usage: Json | None = None
    error: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class CompletionAssembler:
    """Reads a streamed chat in arbitrary pieces, and makes the completion of it that a whole reply would be."""

    def __init__(self) -> None:
        self._rest = b""
        self._head: Json = {}
        self._choices: dict[int, Json] = {}
        self._usage: Json | None = None
        self._has_failed = False
        self._n_bytes = 0

    def feed(self, data: bytes) -> None:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            lines = [line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA)]
            text = b"\n".join(lines)
            if text and text != _END:
                self._add(text)

    def completion(self) -> Json | None:
        """None if there is none: the answer broke off, or is no chat."""
        if self._has_failed or not self._choices or "id" not in self._head:
            return None
        choices = [self._choices[index] for index in sorted(self._choices)]
        usage = {"usage": self._usage} if self._usage is not None else {}
        return {**self._head, "object": "chat.completion", "choices": choices, **usage}

    def _add(self, text: bytes) -> None:
        try:
            chunk = _decode_chunk(text)
        except (msgspec.DecodeError, RecursionError):
            self._has_failed = True
            return
        self._n_bytes += len(text)
        if chunk.error is not None or self._n_bytes > STORED_STREAM_BYTES_MAX:
            self._has_failed = True
            return
        self._head |= {name: value for name in _SAME if (value := getattr(chunk, name)) is not None}
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices or ():
            if choice.index in self._choices or len(self._choices) < CHOICES_MAX:
                self._add_choice(choice)

    def _add_choice(self, choice: _Choice) -> None:
        empty: Json = {"role": "assistant", "content": None, "refusal": None}
        fresh = {"index": choice.index, "message": empty, "logprobs": None, "finish_reason": None}
        found, delta = self._choices.setdefault(choice.index, fresh), choice.delta
        message = found["message"]
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            piece: str | None = getattr(delta, name)
            if piece is not None:
                message[name] = (message.get(name) or "") + piece
        for call in delta.tool_calls or ():
            _add_call(message.setdefault("tool_calls", []), call)
        found["finish_reason"] = choice.finish_reason or found["finish_reason"]
        if choice.logprobs is not None and choice.logprobs.content:
            before = (found["logprobs"] or {}).get("content") or []
            found["logprobs"] = {"content": [*before, *choice.logprobs.content]}


def _add_call(calls: list[Json], delta: _Call) -> None:
    index = len(calls) if delta.index is None else delta.index
    if not 0 <= index < CALLS_MAX:
        return
    while len(calls) <= index:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call = calls[index]
    call["id"] = delta.id or call["id"]
    if delta.function is not None:
        call["function"]["name"] += delta.function.name or ""
        call["function"]["arguments"] += delta.function.arguments or ""


def read_whole(body: bytes) -> Json | None:
    """A reply that came in one piece; None if it is no completion."""
    try:
        found = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    is_completion = isinstance(found, dict) and isinstance(found.get("id"), str) and bool(found.get("choices"))
    return found if is_completion else None


def metadata_of(body: bytes) -> dict[str, str]:
    """The metadata of a chat request. Raises InvalidField."""
    metadata = _decode(body).get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidField("Metadata is an object of texts.", param="metadata")
    return metadata


def messages_of(body: bytes, completion_id: str) -> list[Json]:
    """The messages of a chat request in the shape in which they are listed, each with an id."""
    return [
        _listed(message, f"{completion_id}-{number}")
        for number, message in enumerate(_decode(body).get("messages") or ())
        if isinstance(message, dict)
    ]


def _listed(message: Json, message_id: str) -> Json:
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return message | {
        "id": message_id,
        "content": None if parts is not None else content,
        "content_parts": parts,
        "refusal": message.get("refusal"),
    }
