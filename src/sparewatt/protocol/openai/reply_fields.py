"""The fields of replies that clients get: closed lists, one for each shape of OpenAI's formats, as its specification
has them (ADR 0062).

A node's server may send any other field. No client's library shows it, so nobody would notice what a node puts there:
unknown fields are removed. So are values of another type, and nulls where the specification has none; what it requires
and a server leaves out is filled in. What servers add to OpenAI's own fields, and clients use, is in the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType

from sparewatt.protocol.openai.chat import UNREADABLE

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
TextFinishReason = Literal["stop", "length", "content_filter"]
Role = Literal["developer", "system", "user", "assistant", "tool"]
STOPPED: Final = b'"stop"'
"""In place of a finish reason that clients do not know."""
_NULL: Final = b"null"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value by the bytes that it may begin with."""

    first: bytes
    is_whole: bool = False
    """A number without a fraction; one that has a fraction is cut."""


@dataclass(frozen=True, slots=True)
class Words:
    """One of these strings. Any other becomes `instead`, or is removed."""

    words: frozenset[bytes]
    instead: bytes | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    item: Shape
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Fields:
    """An object. `required`: what it must have, with the value for a server that leaves it out."""

    fields: Mapping[str, Shape]
    required: Mapping[str, bytes] = field(default_factory=dict)
    nullable: bool = False


Shape: TypeAlias = Scalar | Words | Items | Fields | EllipsisType
"""Of a value; `...` is anything."""

TEXT: Final = Scalar(b'"')
TEXT_OR_NULL: Final = Scalar(b'"n')
NUMBER: Final = Scalar(b"-0123456789")
NUMBER_OR_NULL: Final = Scalar(b"-0123456789n")
WHOLE: Final = Scalar(b"-0123456789", is_whole=True)
SCALAR: Final = Scalar(b'"-0123456789tfn')


def _words(kind: object, **options: bytes | bool) -> Words:
    return Words(frozenset(f'"{word}"'.encode() for word in get_args(kind)), **options)  # type: ignore[arg-type]


_BYTES: Final = Items(WHOLE, nullable=True)
_RANKED: Final[Mapping[str, Shape]] = {"token": TEXT, "logprob": NUMBER, "bytes": _BYTES}
_RANKED_REQUIRED: Final = {"token": b'""', "logprob": b"0", "bytes": _NULL}
_TOKENS: Final = Items(
    Fields(
        {**_RANKED, "top_logprobs": Items(Fields(_RANKED, _RANKED_REQUIRED))},
        {**_RANKED_REQUIRED, "top_logprobs": b"[]"},
    ),
    nullable=True,
)
_CHAT_LOGPROBS: Final = Fields(
    {"content": _TOKENS, "refusal": _TOKENS}, {"content": _NULL, "refusal": _NULL}, nullable=True
)
ANY_NAMES: Final = "*"
"""An object with any names, all of one shape: the likeliest tokens of a text completion, by their text."""
_TEXT_LOGPROBS: Final = Fields(
    {
        "content": _TOKENS,  # as llama.cpp has them; `completion_logprobs` writes what clients read
        "tokens": Items(TEXT),
        "token_logprobs": Items(NUMBER_OR_NULL),
        "top_logprobs": Items(Fields({ANY_NAMES: NUMBER}, nullable=True)),
        "text_offset": Items(WHOLE),
    },
    nullable=True,
)
_FUNCTION: Final[Mapping[str, Shape]] = {"name": TEXT, "arguments": TEXT}
_FUNCTION_REQUIRED: Final = {"name": b'""', "arguments": b'""'}
_CALL: Final[Mapping[str, Shape]] = {"index": WHOLE, "id": TEXT, "type": TEXT}
_CITATION: Final = Fields(
    {"start_index": WHOLE, "end_index": WHOLE, "title": TEXT, "url": TEXT},
    {"start_index": b"0", "end_index": b"0", "title": b'""', "url": b'""'},
)
_ANNOTATIONS: Final = Items(
    Fields({"type": TEXT, "url_citation": _CITATION}, {"type": b'"url_citation"', "url_citation": b"{}"})
)
_MESSAGE: Final[Mapping[str, Shape]] = {
    "content": TEXT_OR_NULL,
    "reasoning_content": TEXT_OR_NULL,
    "reasoning": TEXT_OR_NULL,
    "refusal": TEXT_OR_NULL,
    "annotations": _ANNOTATIONS,
}
_DELTA: Final = Fields(
    {
        **_MESSAGE,
        "role": _words(Role),
        "tool_calls": Items(Fields({**_CALL, "function": Fields(_FUNCTION)}, {"index": b"0"})),
        "function_call": Fields(_FUNCTION),
    }
)
_WHOLE_MESSAGE: Final = Fields(
    {
        **_MESSAGE,
        "role": _words(Literal["assistant"]),
        "tool_calls": Items(
            Fields(
                {**_CALL, "function": Fields(_FUNCTION, _FUNCTION_REQUIRED)},
                {"id": b'""', "type": b'"function"', "function": b'{"name":"","arguments":""}'},
            )
        ),
        "function_call": Fields(_FUNCTION, _FUNCTION_REQUIRED),
    },
    {"role": b'"assistant"', "content": _NULL, "refusal": _NULL},
)
_CHOICE: Final[Mapping[str, Shape]] = {"index": WHOLE, "stop_reason": SCALAR}
_USAGE: Final[Mapping[str, Shape]] = {
    "prompt_tokens": WHOLE,
    "completion_tokens": WHOLE,
    "total_tokens": WHOLE,
    "prompt_tokens_details": Fields({"cached_tokens": WHOLE, "audio_tokens": WHOLE}),
    "completion_tokens_details": Fields(
        {
            "reasoning_tokens": WHOLE,
            "audio_tokens": WHOLE,
            "accepted_prediction_tokens": WHOLE,
            "rejected_prediction_tokens": WHOLE,
        }
    ),
}
_COUNTS_REQUIRED: Final = {"prompt_tokens": b"0", "completion_tokens": b"0", "total_tokens": b"0"}
_REPLY: Final[Mapping[str, Shape]] = {
    "id": TEXT,
    "object": TEXT,
    "created": WHOLE,
    "model": TEXT,
    "system_fingerprint": TEXT,
    "service_tier": TEXT_OR_NULL,
    "usage": Fields(_USAGE, _COUNTS_REQUIRED),
}
_CHUNK_CHOICE: Final = Fields(
    {
        **_CHOICE,
        "delta": _DELTA,
        "logprobs": _CHAT_LOGPROBS,
        "finish_reason": _words(FinishReason, instead=STOPPED, nullable=True),
    },
    {"index": b"0", "delta": b"{}", "finish_reason": _NULL},
)
_WHOLE_CHOICE: Final = Fields(
    {
        **_CHOICE,
        "message": _WHOLE_MESSAGE,
        "logprobs": _CHAT_LOGPROBS,
        "finish_reason": _words(FinishReason, instead=STOPPED),
    },
    {"index": b"0", "logprobs": _NULL, "finish_reason": STOPPED},
)
_TEXT_CHUNK_CHOICE: Final = Fields(
    {
        **_CHOICE,
        "text": TEXT,
        "logprobs": _TEXT_LOGPROBS,
        "finish_reason": _words(TextFinishReason, instead=STOPPED, nullable=True),
    },
    {"index": b"0", "text": b'""', "logprobs": _NULL, "finish_reason": _NULL},
)
_WHOLE_TEXT_CHOICE: Final = Fields(
    {**_TEXT_CHUNK_CHOICE.fields, "finish_reason": _words(TextFinishReason, instead=STOPPED)},
    {**_TEXT_CHUNK_CHOICE.required, "finish_reason": STOPPED},
)
CHUNK: Final = Fields(
    {**_REPLY, "usage": Fields(_USAGE, _COUNTS_REQUIRED, nullable=True), "choices": Items(_CHUNK_CHOICE)}
)
COMPLETION: Final = Fields({**_REPLY, "choices": Items(_WHOLE_CHOICE)})
TEXT_CHUNK: Final = Fields({**_REPLY, "choices": Items(_TEXT_CHUNK_CHOICE)})
TEXT_COMPLETION: Final = Fields({**_REPLY, "choices": Items(_WHOLE_TEXT_CHOICE)})
VECTORS: Final = Fields({**_REPLY, "usage": Fields(_USAGE), "data": ...}, {"object": b'"list"'})
"""Vectors are long, and are encoded anew, with their known fields alone (`embeddings.with_encoding`)."""

_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class _PlainFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class _PlainToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: _PlainFunction | UnsetType = UNSET


class _PlainDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Role | UnsetType = UNSET
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_PlainToolCall] | UnsetType = UNSET


class _PlainChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    delta: _PlainDelta
    finish_reason: FinishReason | None
    logprobs: None = None
    stop_reason: str | int | None = None


class _PlainUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class _PlainReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply as nearly every one is: decoding it is the fastest way to see that it has known fields alone."""

    id: str | UnsetType = UNSET
    object: str | UnsetType = UNSET
    created: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    service_tier: str | None = None


class _PlainChunk(_PlainReply, frozen=True, forbid_unknown_fields=True):
    choices: list[_PlainChoice] | UnsetType = UNSET
    usage: _PlainUsage | None = None


class _PlainMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _PlainWholeChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    message: _PlainMessage
    finish_reason: FinishReason
    logprobs: None
    stop_reason: str | int | None = None


class _PlainCompletion(_PlainReply, frozen=True, forbid_unknown_fields=True):
    choices: list[_PlainWholeChoice] | UnsetType = UNSET
    usage: _PlainUsage | UnsetType = UNSET


_plain_decoder = msgspec.json.Decoder(_PlainChunk)
_plain_completion_decoder = msgspec.json.Decoder(_PlainCompletion)


def known_chunk(data: bytes) -> bytes:
    """`known_fields` of a chunk."""
    return _known_reply(data, plain=_plain_decoder.decode, chat=CHUNK, text=TEXT_CHUNK)


def known_completion(data: bytes) -> bytes:
    """`known_fields` of a whole answer."""
    return _known_reply(data, plain=_plain_completion_decoder.decode, chat=COMPLETION, text=TEXT_COMPLETION)


def _known_reply(data: bytes, *, plain: Callable[[bytes], object], chat: Fields, text: Fields) -> bytes:
    try:
        plain(data)
    except UNREADABLE:
        return known_fields(data, text if _is_text(data) else chat)
    return data


def _is_text(data: bytes) -> bool:
    """Whether it is of a text completion. In JSON, no text can hold this: the quotes would be escaped."""
    return b'"text_completion"' in data or (b'"text"' in data and b'"delta"' not in data and b'"message"' not in data)


def known_fields(reply: bytes, shape: Fields) -> bytes:
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
    match shape:
        case Scalar(first, is_whole):
            fits = value[:1] in first
            return (_cut(value) if is_whole else value) if fits else None
        case Fields() | Items() | Words() if value == _NULL:
            return value if shape.nullable else None
        case Words(words, instead):
            return value if value in words else instead
        case Items(item):
            return _known_items(value, item) if value[:1] == b"[" else None
        case Fields():
            return _known_object(value, shape) if value[:1] == b"{" else None
        case _:
            return value


def _cut(number: bytes) -> bytes | None:
    """Some servers give whole seconds and counts a fraction."""
    if number[1:].isdigit() or number.isdigit():
        return number
    try:
        return b"%d" % int(float(number))
    except (ValueError, OverflowError):
        return None


def _known_items(value: bytes, shape: Shape) -> bytes:
    items = [bytes(item) for item in _items_decoder.decode(value)]
    known = [_known(item, shape) for item in items]
    if all(after is before for before, after in zip(items, known, strict=True)):
        return value
    return b"[%b]" % b",".join([item for item in known if item is not None])


def _known_object(value: bytes, shape: Fields) -> bytes:
    fields = _fields_decoder.decode(value)
    shapes, any_name = shape.fields, shape.fields.get(ANY_NAMES)
    kept: dict[str, msgspec.Raw] = {}
    is_same = True
    for name, raw in fields.items():
        wanted = shapes.get(name, any_name)
        before = bytes(raw)
        after = _known(before, wanted) if wanted is not None else None
        is_same = is_same and after is before
        if after is not None:
            kept[name] = msgspec.Raw(after)
    for name, default in shape.required.items():
        if name not in kept:
            is_same = False
            kept[name] = msgspec.Raw(default)
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
