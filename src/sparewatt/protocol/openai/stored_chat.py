"""A chat completion as it is stored: put together from its stream, with the request's metadata and messages. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField

Json = dict[str, Any]
_DATA, _END = b"data:", b"[DONE]"
_SAME = ("id", "created", "model", "system_fingerprint", "service_tier")
_decode = msgspec.json.Decoder().decode


class CompletionAssembler:
    """Reads a streamed chat in arbitrary pieces, and makes the completion of it that a whole reply would be."""

    def __init__(self) -> None:
        self._rest = b""
        self._head: Json = {}
        self._choices: dict[int, Json] = {}
        self._usage: Json | None = None
        self._has_failed = False

    def feed(self, data: bytes) -> None:
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            lines = [line[len(_DATA) :].strip() for line in event.splitlines() if line.startswith(_DATA)]
            text = b"\n".join(lines)
            if text and text != _END:
                self._add(text)

    def completion(self) -> Json | None:
        """None if there is none: the answer broke off, or is no chat."""
        if self._has_failed or not self._choices or not isinstance(self._head.get("id"), str):
            return None
        choices = [self._choices[index] for index in sorted(self._choices)]
        usage = {"usage": self._usage} if self._usage is not None else {}
        return {**self._head, "object": "chat.completion", "choices": choices, **usage}

    def _add(self, text: bytes) -> None:
        try:
            chunk = _decode(text)
        except (msgspec.DecodeError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict) or chunk.get("error") is not None:
            self._has_failed = True
            return
        self._head |= {name: chunk[name] for name in _SAME if name in chunk}
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict):
                self._add_choice(choice)

    def _add_choice(self, choice: Json) -> None:
        index = choice.get("index", 0)
        empty: Json = {"role": "assistant", "content": None, "refusal": None}
        found = self._choices.setdefault(
            index, {"index": index, "message": empty, "logprobs": None, "finish_reason": None}
        )
        message, delta = found["message"], choice.get("delta") or {}
        for name in ("content", "refusal", "reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                message[name] = (message.get(name) or "") + delta[name]
        for call in delta.get("tool_calls") or ():
            _add_call(message.setdefault("tool_calls", []), call)
        found["finish_reason"] = choice.get("finish_reason") or found["finish_reason"]
        scores = (choice.get("logprobs") or {}).get("content")
        if scores:
            found["logprobs"] = {"content": [*((found["logprobs"] or {}).get("content") or ()), *scores]}


def _add_call(calls: list[Json], delta: Json) -> None:
    index, function = delta.get("index", len(calls)), delta.get("function") or {}
    while len(calls) <= index and len(calls) < CALLS_MAX:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    if index < len(calls):
        call = calls[index]
        call["id"] = delta.get("id") or call["id"]
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


CALLS_MAX = 256
"""Tool calls of one answer: a node writes their numbers."""


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
