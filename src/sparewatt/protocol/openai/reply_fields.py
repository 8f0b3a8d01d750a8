"""The fields of replies that clients get: closed lists, one for each shape of OpenAI's formats.

A node's server may send any other field. No client's library shows it, so nobody would notice what a node puts there:
unknown fields are removed. What servers add to OpenAI's own fields, and clients use, is in the lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Final, Literal, TypeAlias, Union, get_args

import msgspec

from sparewatt.protocol.openai.chat import UNREADABLE

Shape: TypeAlias = Union["dict[str, Shape]", "tuple[Shape]", "frozenset[bytes]", EllipsisType, None]
"""Of a value: an object with these fields, a list of such values (a tuple of one), one of these words, a scalar (None),
anything (...)."""
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
STOPPED: Final = b'"stop"'
"""In place of a finish reason that clients do not know."""
_FINISH_REASONS: Final = frozenset(f'"{reason}"'.encode() for reason in get_args(FinishReason))

_NUMBERS: Final[Shape] = (None,)
_TOKEN: Final[dict[str, Shape]] = {"token": None, "logprob": None, "bytes": _NUMBERS}
_TOKENS: Final[Shape] = ({**_TOKEN, "top_logprobs": (_TOKEN,)},)
ANY_NAMES: Final = "*"
"""An object with any names, all of them scalars: the likeliest tokens of a text completion, by their text."""
_LOGPROBS: Final[dict[str, Shape]] = {
    "content": _TOKENS,
    "refusal": _TOKENS,
    "tokens": (None,),
    "token_logprobs": _NUMBERS,
    "top_logprobs": ({ANY_NAMES: None},),
    "text_offset": _NUMBERS,
}
_FUNCTION: Final[dict[str, Shape]] = {"name": None, "arguments": None}
_TOOL_CALL: Final[dict[str, Shape]] = {"index": None, "id": None, "type": None, "function": _FUNCTION}
_CITATION: Final[dict[str, Shape]] = {"start_index": None, "end_index": None, "title": None, "url": None}
_MESSAGE: Final[dict[str, Shape]] = {
    "role": None,
    "content": None,
    "reasoning_content": None,
    "reasoning": None,
    "refusal": None,
    "tool_calls": (_TOOL_CALL,),
    "function_call": _FUNCTION,
    "annotations": ({"type": None, "url_citation": _CITATION},),
}
_CHOICE: Final[dict[str, Shape]] = {
    "index": None,
    "text": None,
    "logprobs": _LOGPROBS,
    "finish_reason": _FINISH_REASONS,
    "stop_reason": None,
}
_USAGE: Final[dict[str, Shape]] = {
    "prompt_tokens": None,
    "completion_tokens": None,
    "total_tokens": None,
    "prompt_tokens_details": {"cached_tokens": None, "audio_tokens": None},
    "completion_tokens_details": {
        "reasoning_tokens": None,
        "audio_tokens": None,
        "accepted_prediction_tokens": None,
        "rejected_prediction_tokens": None,
    },
}
_REPLY: Final[dict[str, Shape]] = {
    "id": None,
    "object": None,
    "created": None,
    "model": None,
    "system_fingerprint": None,
    "service_tier": None,
    "usage": _USAGE,
}
CHUNK: Final[dict[str, Shape]] = {**_REPLY, "choices": ({**_CHOICE, "delta": _MESSAGE},)}
COMPLETION: Final[dict[str, Shape]] = {**_REPLY, "choices": ({**_CHOICE, "message": _MESSAGE},)}
VECTORS: Final[dict[str, Shape]] = {**_REPLY, "data": ...}
"""Vectors are long, and are encoded anew, with their known fields alone (`embeddings.with_encoding`)."""

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class _PlainFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | None = None


class _PlainToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: _PlainFunction | None = None


class _PlainDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_PlainToolCall] | None = None


class _PlainChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int | None = None
    delta: _PlainDelta | None = None
    text: str | None = None
    finish_reason: FinishReason | None = None
    logprobs: None = None
    stop_reason: str | int | None = None


class _PlainUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class _PlainChunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chunk as nearly every one is: decoding it is the fastest way to see that it has known fields alone."""

    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    choices: list[_PlainChoice] | None = None
    usage: _PlainUsage | None = None


class _PlainWholeChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int | None = None
    message: _PlainDelta | None = None
    text: str | None = None
    finish_reason: FinishReason | None = None
    logprobs: None = None
    stop_reason: str | int | None = None


class _PlainCompletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same of a whole answer."""

    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    choices: list[_PlainWholeChoice] | None = None
    usage: _PlainUsage | None = None


_plain_decoder = msgspec.json.Decoder(_PlainChunk)
_plain_completion_decoder = msgspec.json.Decoder(_PlainCompletion)


def known_chunk(data: bytes) -> bytes:
    """`known_fields` of a chunk."""
    try:
        _plain_decoder.decode(data)
    except UNREADABLE:
        return known_fields(data, CHUNK)
    return data


def known_completion(data: bytes) -> bytes:
    """`known_fields` of a whole answer."""
    try:
        _plain_completion_decoder.decode(data)
    except UNREADABLE:
        return known_fields(data, COMPLETION)
    return data


def known_fields(reply: bytes, shape: dict[str, Shape]) -> bytes:
    """The reply without what is not in its shape; the same object if there is no such thing. Raises ValueError."""
    try:
        known = _known(reply, shape)
    except UNREADABLE as error:
        raise ValueError(str(error)) from None
    if known is None:
        raise ValueError("not an object")
    return known


def _known(value: bytes, shape: Shape) -> bytes | None:
    """What of a value has this shape; the same object if all of it has, None if nothing has."""
    if value == b"null" or shape is ...:
        return value
    first = value[:1]
    if shape is None:
        return None if first in b"{[" else value
    if isinstance(shape, frozenset):
        return value if value in shape else STOPPED
    if isinstance(shape, tuple):
        return _known_items(value, shape[0]) if first == b"[" else None
    return _known_object(value, shape) if first == b"{" else None


def _known_items(value: bytes, shape: Shape) -> bytes:
    items = [bytes(item) for item in _items_decoder.decode(value)]
    known = [_known(item, shape) for item in items]
    if all(after is before for before, after in zip(items, known, strict=True)):
        return value
    return b"[%b]" % b",".join([item for item in known if item is not None])


def _known_object(value: bytes, shape: dict[str, Shape]) -> bytes:
    fields = _fields_decoder.decode(value)
    any_name = ANY_NAMES in shape
    kept: dict[str, msgspec.Raw] = {}
    is_same = True
    for name, raw in fields.items():
        if name not in shape and not any_name:
            is_same = False
            continue
        before = bytes(raw)
        after = _known(before, shape.get(name))
        is_same = is_same and after is before
        if after is not None:
            kept[name] = msgspec.Raw(after)
    return value if is_same else _encode(kept)


def with_choices(reply: bytes, kept: Sequence[bool]) -> bytes:
    """A reply that was read, with these of its choices only."""
    fields = _fields_decoder.decode(reply)
    choices = _items_decoder.decode(fields["choices"])
    chosen = [bytes(choice) for choice, is_kept in zip(choices, kept, strict=True) if is_kept]
    return _encode(fields | {"choices": msgspec.Raw(b"[%b]" % b",".join(chosen))})


def without_usage(reply: bytes) -> bytes:
    fields = _fields_decoder.decode(reply)
    fields.pop("usage", None)
    return _encode(fields)
