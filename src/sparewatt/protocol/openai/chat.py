"""The part of OpenAI's wire format that routing needs. The rest of a body must be JSON and is passed on."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from sparewatt.core.errors import BodyTooLarge, InvalidField, InvalidJson, SparewattError
from sparewatt.core.limits import (
    BODY_TOP_FIELDS_MAX,
    LONG_BODY_BYTES_MIN,
    MESSAGES_MAX,
    MODEL_ID_CHARS_MAX,
    RETRY_AFTER_S_MAX,
)
from sparewatt.protocol.openai.json_complexity import refuse_complex

TOKENS_MAX = 1 << 24
_TokenCount = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


NULL = msgspec.Raw(b"null")
"""What a field that is not there is taken for; the very object tells that it was not there."""
_NOTHING = (b"null", b'""', b"[]", b"{}")
_QUOTES = 2
_T = TypeVar("_T")


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The fields of a chat request that decide where it goes and how its reply is read."""

    model: Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX)]
    messages: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=MESSAGES_MAX)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _TokenCount | None = None
    max_completion_tokens: _TokenCount | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    tools: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    logprobs: msgspec.Raw = NULL
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Who may serve it, in the words of `policy/`; not for the node's eyes. Empty if it is not there."""

    @property
    def output_limit(self) -> int | None:
        """At least one: no server writes a chat of nothing, and some take 0 for no limit."""
        asked = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return None if asked is None else max(1, asked)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class PlainChatRequest(ChatRequest, frozen=True, forbid_unknown_fields=True):
    """A chat request in which nothing else stands than what nearly every request is made of. All of it is passed on."""

    temperature: msgspec.Raw = NULL
    top_p: msgspec.Raw = NULL
    stop: msgspec.Raw = NULL
    seed: msgspec.Raw = NULL
    presence_penalty: msgspec.Raw = NULL
    frequency_penalty: msgspec.Raw = NULL
    logit_bias: msgspec.Raw = NULL
    top_logprobs: msgspec.Raw = NULL
    parallel_tool_calls: msgspec.Raw = NULL
    reasoning_effort: msgspec.Raw = NULL
    top_k: msgspec.Raw = NULL
    min_p: msgspec.Raw = NULL
    repetition_penalty: msgspec.Raw = NULL


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _TokenCount = 0
    completion_tokens: _TokenCount = 0


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: dict[str, msgspec.Raw] | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    """What a text completion says, which has no delta."""

    def output_bytes(self) -> int | None:
        """How much it says, None if nothing. Whatever the field: servers differ in where they put things."""
        said = [bytes(part) for name, part in (self.delta or {}).items() if name != "role"]
        said += (bytes(self.text), bytes(self.logprobs))  # without text, log probabilities are the answer
        sizes = [len(part) - _QUOTES for part in said if part not in _NOTHING]
        return sum(sizes) if sizes else None


class CompletionChunk(msgspec.Struct, frozen=True):
    """One event of a stream, as far as the gateway looks into it."""

    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = NULL

    def is_error(self) -> bool:
        return bytes(self.error) != b"null"

    def carries_output(self) -> bool:
        """True once there is something a client would lose if another node started over."""
        return self.output_bytes() is not None

    def output_bytes(self) -> int | None:
        """How much text it carries, None if there is nothing that a client would miss."""
        sizes = [size for choice in self.choices or () if (size := choice.output_bytes()) is not None]
        return sum(sizes) if sizes else None

    def ends_text(self) -> bool:
        """Whether a text completion is complete with it, or one of several."""
        return any(choice.finish_reason and bytes(choice.text) != b"null" for choice in self.choices or ())

    def finishes(self) -> bool:
        return any(choice.finish_reason for choice in self.choices or ())


class _WholeChoice(msgspec.Struct, frozen=True):
    message: dict[str, msgspec.Raw] | None = None
    logprobs: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    finish_reason: str | None = None

    def output_bytes(self) -> int:
        n_bytes = 0
        for name, part in (self.message or {}).items():
            if name != "role":
                n_bytes += _said_bytes(part)
        if self.text is not NULL:
            n_bytes += _said_bytes(self.text)
        return n_bytes if self.logprobs is NULL else n_bytes + _said_bytes(self.logprobs)


def _said_bytes(part: msgspec.Raw) -> int:
    said = bytes(part)
    return 0 if said in _NOTHING else len(said) - _QUOTES


class Completion(msgspec.Struct, frozen=True):
    """A whole reply, as far as the gateway looks into it."""

    choices: list[_WholeChoice]
    usage: Usage | None = None

    def output_bytes(self) -> int:
        n_bytes = 0
        for choice in self.choices:
            n_bytes += choice.output_bytes()
        return n_bytes

    def finish_reason(self) -> str | None:
        return self.choices[-1].finish_reason if self.choices else None


class UsageEnvelope(msgspec.Struct, frozen=True):
    usage: Usage | None = None


class _RawUsageEnvelope(msgspec.Struct, frozen=True):
    usage: msgspec.Raw = NULL


_chat_decoder = msgspec.json.Decoder(ChatRequest)
_plain_decoder = msgspec.json.Decoder(PlainChatRequest)
_chunk_decoder = msgspec.json.Decoder(CompletionChunk)
_completion_decoder = msgspec.json.Decoder(Completion)
_raw_counts_decoder = msgspec.json.Decoder(_RawUsageEnvelope)
_counted_decoder = msgspec.json.Decoder(UsageEnvelope)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_usage_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_encoder = msgspec.json.Encoder()


def parse_chat(body: bytes) -> ChatRequest:
    """Read a chat request. Raises InvalidJson, InvalidField (naming the field) or BodyTooLarge; never anything else."""
    return parse_body(_chat_decoder, body)


def parse_plain(body: bytes) -> PlainChatRequest | None:
    """A chat request without anything unusual; None for all others, the wrong among them. Raises BodyTooLarge."""
    refuse_complex(body)
    try:
        if not body.isascii():
            body.decode()  # much is passed on unread, and a model server would choke on it
        return _plain_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def parse_body(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Raises InvalidJson, InvalidField (naming the field) or BodyTooLarge; never anything else."""
    refuse_complex(body)
    try:
        if not body or body.isspace():
            raise InvalidJson("The body is empty. Send a JSON object.")
        if not body.isascii():
            body.decode()  # much is passed on unread, and a model server would choke on it
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _field_error(error) from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}") from None


def _field_error(error: msgspec.ValidationError) -> InvalidField:
    """msgspec says "Expected `int`, got `str` - at `$.max_tokens`"; OpenAI clients want the path apart."""
    text, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".") or None
    if "missing required field" in text:
        field = text.split("`")[1]
        text = f"The field '{field}' is required"
    return InvalidField(f"{text}.", param=field)


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The top level of a body that was parsed before, values unread. Raises BodyTooLarge."""
    fields = _fields_decoder.decode(body)
    if len(fields) > BODY_TOP_FIELDS_MAX:
        raise BodyTooLarge(f"The body has more than {BODY_TOP_FIELDS_MAX:,} fields at its top.")
    return fields


def for_node(
    body: bytes,
    *,
    stream: bool,
    output_limit: int | None = None,
    model: str | None = None,
    without: Collection[str] = (),
) -> bytes:
    """The request as a node gets it: every stream ends in its token counts, and writes no more than it may.

    `model` is given if the request says anything about who may serve it; that part is left out, as is `without`.
    """
    if not stream and output_limit is None and model is None and not without:
        return body
    if model is None and not without and (longer := _spliced(body, stream=stream, output_limit=output_limit)):
        return longer
    fields = _fields_decoder.decode(body)
    for name in without:
        fields.pop(name, None)
    if model is not None:
        fields["model"] = msgspec.Raw(msgspec.json.encode(model))
        fields.pop("provider", None)
    if stream:
        fields["stream_options"] = _usage_included(fields.get("stream_options", NULL))
    if output_limit is not None:
        fields["max_tokens"] = msgspec.Raw(b"%d" % output_limit)
    elif bytes(fields.get("max_completion_tokens", NULL)) != b"null":  # every server knows the older name
        fields["max_tokens"] = fields["max_completion_tokens"]
    return msgspec.json.encode(fields)


def _spliced(body: bytes, *, stream: bool, output_limit: int | None) -> bytes | None:
    """The request with what it lacks put at its end. None if one of those names stands in it already.

    A short one is searched for them, a long one is read.
    """
    more = b""
    if stream:
        more = b',"stream_options":{"include_usage":true}'
    if output_limit is not None:
        more += b',"max_tokens":%d' % output_limit
    if len(body) >= LONG_BODY_BYTES_MIN:
        said = _fields_decoder.decode(body)
        is_said = (stream and "stream_options" in said) or (output_limit is not None and "max_tokens" in said)
        is_said = is_said or "max_completion_tokens" in said
    else:
        is_said = (stream and b'"stream_options"' in body) or (output_limit is not None and b'"max_tokens"' in body)
        is_said = is_said or b'"max_completion_tokens"' in body
    if is_said:
        return None
    end = body.rindex(b"}")
    return body[:end] + more + body[end:]


def _usage_included(options: msgspec.Raw) -> msgspec.Raw:
    given = msgspec.json.decode(options, type=dict[str, msgspec.Raw] | None) or {}
    return msgspec.Raw(msgspec.json.encode(given | {"include_usage": True}))


def as_stream(body: bytes) -> bytes:
    """The same request, asking for a stream that ends in its token counts."""
    fields = _fields_decoder.decode(for_node(body, stream=True))
    fields["stream"] = msgspec.Raw(b"true")
    return msgspec.json.encode(fields)


def _refuse_odd_bytes(data: bytes) -> None:
    """What is not looked into is not checked either, and may be looked into later. Raises UnicodeDecodeError."""
    if not data.isascii():
        data.decode()


def read_chunk(data: bytes) -> CompletionChunk | None:
    """One event's data, or None if it is no chunk at all."""
    try:
        _refuse_odd_bytes(data)
        return _chunk_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def with_usage(reply: bytes, counts: Usage | None, *, cost_usd: float | None = None) -> bytes:
    """The same chunk or whole reply with these counts (None: its own), and what they cost."""
    fields = _fields_decoder.decode(reply)
    usage = _usage_decoder.decode(fields.get("usage", NULL)) or {}
    if counts is not None:
        total = counts.prompt_tokens + counts.completion_tokens
        usage |= {"prompt_tokens": _raw(counts.prompt_tokens), "completion_tokens": _raw(counts.completion_tokens)}
        usage["total_tokens"] = _raw(total)
    if cost_usd is not None:
        usage["cost"] = _raw(cost_usd)
    fields["usage"] = msgspec.Raw(_encoder.encode(usage))
    return _encoder.encode(fields)


def with_cost(reply: bytes, cost_usd: float) -> bytes:
    """The same chunk or whole reply with what its counts cost, written after them where that is easy."""
    usage = bytes(_raw_counts_decoder.decode(reply).usage)
    if usage.startswith(b'{"') and b'"cost"' not in usage and reply.count(usage) == 1:  # nor can it be inside a text
        return reply.replace(usage, b'%b,"cost":%b}' % (usage[:-1], _encoder.encode(cost_usd)))
    return with_usage(reply, None, cost_usd=cost_usd)


def _raw(number: float) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(number))


def read_completion(body: bytes) -> Completion | None:
    try:
        _refuse_odd_bytes(body)
        return _completion_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_usage(body: bytes) -> Usage | None:
    """The token counts of a whole reply, of any endpoint."""
    try:
        return _counted_decoder.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_error_message(body: bytes) -> str | None:
    """The message of another server's error reply, in any of the shapes seen in the wild."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, Mapping):
        found = found.get("error", found)
    if isinstance(found, Mapping):
        found = found.get("message", found.get("detail"))
    return found[:500] if isinstance(found, str) else None


def error_body(error: SparewattError, **extra: object) -> dict[str, Any]:
    """OpenAI's error object: always all four keys, ours (if any) beside them."""
    shape = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return {"error": shape | extra}


def error_headers(error: SparewattError) -> dict[str, str]:
    """What HTTP says beside the error object: when to retry, and whether a client should at all."""
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        wait_s = min(error.retry_after_s, RETRY_AFTER_S_MAX)
        headers |= {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}
    if not error.retryable and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        headers["x-should-retry"] = "false"
    return headers
