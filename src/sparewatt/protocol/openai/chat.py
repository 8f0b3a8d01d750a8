"""OpenAI's chat format as far as routing needs it: requests, replies, token counts, and error objects.

The gateway decodes only the fields that decide where a request goes and how its reply is read. The rest of a body must
be valid JSON, and is passed on unread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sparewatt.core.errors import BodyTooLarge, InvalidField, InvalidJson, SparewattError
from sparewatt.core.limits import LONG_BODY_BYTES_MIN, RETRY_AFTER_S_MAX
from sparewatt.protocol.link.node_report import MODEL_ID_CHARS_MAX
from sparewatt.protocol.openai.json_complexity import refuse_complex

BODY_TOP_FIELDS_MAX = 1_000
"""Fields at the top level of a body: each is looked up, and servers know two hundred."""
MESSAGES_MAX = 20_000
"""Messages of one chat: each is checked by itself, and a body full of them would block the event loop for a minute."""
TOKENS_MAX = 1 << 24
TokenCount = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]
ModelField = Annotated[str, Meta(min_length=1, max_length=MODEL_ID_CHARS_MAX)]
MODELS_MAX = 8
"""Models that a request may name: each may take a match, and a wait, before the next is tried."""
ModelChoice = Annotated[list[ModelField], Meta(max_length=MODELS_MAX)]
"""Tried in this order, after `model` if there is one."""
AnswerCount = Annotated[int, Meta(ge=1, le=128)]

NULL = msgspec.Raw(b"null")
"""The value of an absent field. Compare by identity to distinguish an absent field from null."""
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are not the JSON it expects."""
_EMPTY = (b"null", b'""', b"[]", b"{}")
_T = TypeVar("_T")


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The fields of a chat request that decide where it goes and how its reply is read."""

    messages: Annotated[list[msgspec.Raw], Meta(min_length=1, max_length=MESSAGES_MAX)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    n: AnswerCount | None = None
    tools: msgspec.Raw = NULL
    tool_choice: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    logprobs: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    top_logprobs: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    provider: msgspec.Raw = msgspec.Raw(b"")
    """Which nodes may serve it, in the vocabulary of `policy/`; nodes do not get it. Empty if it is absent."""
    model: ModelField | UnsetType = UNSET
    models: ModelChoice | UnsetType | None = UNSET

    @property
    def output_limit(self) -> int | None:
        """At least one: no server writes an empty answer, and some take 0 for no limit."""
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return None if limit is None else max(1, limit)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class PlainChatRequest(ChatRequest, frozen=True, forbid_unknown_fields=True):
    """A chat request with common fields only, as nearly every request is. All of them are passed on."""

    top_k: msgspec.Raw = NULL
    min_p: msgspec.Raw = NULL
    repetition_penalty: msgspec.Raw = NULL


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0


class _Function(msgspec.Struct, frozen=True):
    name: msgspec.Raw = NULL
    arguments: msgspec.Raw = NULL


class _ToolCall(msgspec.Struct, frozen=True):
    index: int | None = None
    """None in a whole answer."""
    function: _Function | None = None


_tool_calls_decoder = msgspec.json.Decoder(list[_ToolCall] | None)
_function_decoder = msgspec.json.Decoder(_Function | None)
TEXT_FIELDS = ("content", "refusal")
CALLED = "name"
"""With the number of a tool call behind it: the field of its function's name."""
TOOL_CALLS_MAX = 64
"""Of one answer that count each by itself: those beyond count as one."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Two names of the same; a server that sends both repeats itself."""


class ReadableText(NamedTuple):
    """A piece of what a client can read of an answer."""

    field: str
    """Pieces of one field belong together."""
    inside: bytes
    """As it stands in JSON, between the quotes."""


def _readable(fields: Mapping[str, msgspec.Raw] | None, text: msgspec.Raw) -> Iterator[ReadableText]:
    """What of a choice is text for a reader: content, reasoning, refusal, names and arguments of tool calls."""
    if text is not NULL and (inside := _inside(text)):
        yield ReadableText("text", inside)
    if fields:
        for name in TEXT_FIELDS:
            if name in fields and (inside := _inside(fields[name])):
                yield ReadableText(name, inside)
        reasoning = [inside for name in REASONING_FIELDS if name in fields and (inside := _inside(fields[name]))]
        yield from (ReadableText("reasoning", inside) for inside in reasoning[:1])
        yield from _readable_calls(fields)


def _readable_calls(fields: Mapping[str, msgspec.Raw]) -> Iterator[ReadableText]:
    if "tool_calls" in fields:
        for position, call in enumerate(_tool_calls(fields["tool_calls"])):
            number = position if call.index is None else call.index
            yield from _readable_function(call.function, str(min(max(0, number), TOOL_CALLS_MAX)))
    if "function_call" in fields:
        try:
            yield from _readable_function(_function_decoder.decode(fields["function_call"]), "")
        except UNREADABLE:
            return


def _readable_function(function: _Function | None, call: str) -> Iterator[ReadableText]:
    if function is not None:
        for name, value in ((CALLED, function.name), ("arguments", function.arguments)):
            if inside := _inside(value):
                yield ReadableText(name + call, inside)


def _tool_calls(raw: msgspec.Raw) -> list[_ToolCall]:
    try:
        return _tool_calls_decoder.decode(raw) or []
    except UNREADABLE:
        return []


def _inside(raw: msgspec.Raw) -> bytes:
    value = bytes(raw)
    return value[1:-1] if value[:1] == b'"' else b""


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: dict[str, msgspec.Raw] | None = None
    finish_reason: str | None = None
    logprobs: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    """The output of a text completion, which has no delta."""

    def readable(self) -> Iterator[ReadableText]:
        return _readable(self.delta, self.text)

    def carries_output(self) -> bool:
        parts = [part for name, part in (self.delta or {}).items() if name != "role"]
        return any(bytes(part) not in _EMPTY for part in (*parts, self.text, self.logprobs) if part is not NULL)


class CompletionChunk(msgspec.Struct, frozen=True):
    """One event of a stream, as far as the gateway decodes it."""

    choices: list[ChunkChoice] | None = None
    usage: Usage | None = None
    error: msgspec.Raw = NULL

    def is_error(self) -> bool:
        return bytes(self.error) != b"null"

    def carries_output(self) -> bool:
        """Whether a client that has this chunk would notice if another node started over."""
        return any(choice.carries_output() for choice in self.choices or ())

    def ends_text(self) -> bool:
        """Whether it completes a text completion, or one of several."""
        return any(choice.finish_reason and bytes(choice.text) != b"null" for choice in self.choices or ())

    def finishes(self) -> bool:
        return any(choice.finish_reason for choice in self.choices or ())


class WholeChoice(msgspec.Struct, frozen=True):
    index: int = 0
    message: dict[str, msgspec.Raw] | None = None
    text: msgspec.Raw = NULL
    finish_reason: str | None = None

    def has_answer(self) -> bool:
        return self.message is not None or self.text is not NULL

    def readable(self) -> Iterator[ReadableText]:
        return _readable(self.message, self.text)


class Completion(msgspec.Struct, frozen=True):
    """A whole reply, as far as the gateway decodes it."""

    choices: list[WholeChoice]
    usage: Usage | None = None

    def finish_reason(self) -> str | None:
        return self.choices[-1].finish_reason if self.choices else None


class _UsageEnvelope(msgspec.Struct, frozen=True):
    usage: Usage | None = None


class _RawUsageEnvelope(msgspec.Struct, frozen=True):
    usage: msgspec.Raw = NULL


_chat_decoder = msgspec.json.Decoder(ChatRequest)
_plain_decoder = msgspec.json.Decoder(PlainChatRequest)
_chunk_decoder = msgspec.json.Decoder(CompletionChunk)
_completion_decoder = msgspec.json.Decoder(Completion)
_usage_decoder = msgspec.json.Decoder(_UsageEnvelope)
_raw_usage_decoder = msgspec.json.Decoder(_RawUsageEnvelope)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_fields_or_null_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_encode = msgspec.json.Encoder().encode


# requests


def models_of(model: str | UnsetType, models: Sequence[str] | UnsetType | None) -> tuple[str, ...]:
    """The models to try, in order. Raises InvalidField if there is none, or there are too many."""
    if models is UNSET and model is not UNSET:
        return (model,)
    named = tuple(dict.fromkeys([*([] if model is UNSET else [model]), *(models or ())]))
    if not named:
        raise InvalidField("The field 'model' is required.", param="model")
    if len(named) > MODELS_MAX:
        raise InvalidField(f"A request may name {MODELS_MAX} models, not {len(named)}.", param="models")
    return named


def parse_chat(body: bytes) -> ChatRequest:
    """Raises InvalidJson, InvalidField (naming the field) or BodyTooLarge; never anything else."""
    chat = parse_body(_chat_decoder, body)
    models_of(chat.model, chat.models)
    return chat


def parse_plain(body: bytes) -> PlainChatRequest | None:
    """A chat request without unusual fields; None for all others, also for invalid ones. Raises BodyTooLarge."""
    refuse_complex(body)
    return decode_or_none(_plain_decoder, body)


def parse_body(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Raises InvalidJson, InvalidField (naming the field) or BodyTooLarge; never anything else."""
    refuse_complex(body)
    try:
        if not body or body.isspace():
            raise InvalidJson("The body is empty. Send a JSON object.")
        if not body.isascii():
            body.decode()  # a decoder skips texts unchecked, and a model server would refuse them
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _field_error(error) from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"The body is not valid JSON: {error}") from None


def decode_or_none(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T | None:
    """None if it is not valid UTF-8 (also in the parts that the decoder skips), or not what the decoder expects."""
    try:
        if not data.isascii():
            data.decode()
        return decoder.decode(data)
    except UNREADABLE:
        return None


_EXPECTED = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_LENGTH = re.compile(r"Expected `(\w+)` of length ([<>]=) (\d+)")
_RANGE = re.compile(r"Expected `(?:int|float)` ([<>]=) (-?[0-9.]+)")
_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def _field_error(error: msgspec.ValidationError) -> InvalidField:
    """msgspec says "Expected `int`, got `str` - at `$.max_tokens`"; OpenAI's clients expect the path in `param`."""
    text, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".") or None
    if "missing required field" in text:
        field = text.split("`")[1]
        return InvalidField(f"The field '{field}' is required.", param=field)
    return InvalidField(_in_our_words(text, f"'{field}'" if field else "The body"), param=field)


def _in_our_words(text: str, name: str) -> str:
    if found := _LENGTH.search(text):
        of, least = ("characters" if found[1] == "str" else "entries"), found[2] == ">="
        return f"{name} must have {'at least' if least else 'at most'} {found[3]} {of}."
    if found := _RANGE.search(text):
        return f"{name} must be {'at least' if found[1] == '>=' else 'at most'} {found[2]}."
    if found := _EXPECTED.search(text):
        wanted = [_TYPE_WORDS[kind] for kind in found[1].split(" | ") if kind in _TYPE_WORDS and kind != "null"]
        if wanted:
            return f"{name} must be {' or '.join(wanted)}, not {_TYPE_WORDS.get(found[2], found[2])}."
    if text.startswith("Invalid enum value"):
        return f"{name} has a value that is not known here."
    return f"{name} cannot be read: {text}."


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The top level of a body that was parsed before, values undecoded. Raises BodyTooLarge."""
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
    """The request as a node gets it: a stream ends in its token counts, and the output limit is set.

    `model`: the name to serve it under, for a request with a policy, which nodes do not get. `without`: fields to drop.
    """
    if not stream and output_limit is None and model is None and not without:
        return body
    if model is None and not without and (longer := _spliced(body, stream=stream, output_limit=output_limit)):
        return longer
    fields = _fields_decoder.decode(body)
    for name in without:
        fields.pop(name, None)
    if model is not None:
        fields["model"] = _raw(model)
        fields.pop("provider", None)
    if stream:
        options = _fields_or_null_decoder.decode(fields.get("stream_options", NULL)) or {}
        fields["stream_options"] = _raw(options | {"include_usage": True})
    if output_limit is not None:
        fields["max_tokens"] = _raw(output_limit)
    elif bytes(fields.get("max_completion_tokens", NULL)) != b"null":  # every server knows the older name
        fields["max_tokens"] = fields["max_completion_tokens"]
    return _encode(fields)


class _ModelEnvelope(msgspec.Struct, frozen=True):
    model: str | None = None


_model_decoder = msgspec.json.Decoder(_ModelEnvelope)
_MODEL_VALUE = re.compile(rb'("model"\s*:\s*)"[^"\\]*"')
"""In JSON, no text can hold this: the quotes would be escaped. A name with escapes is not matched."""


def with_model(body: bytes, model: str) -> bytes:
    """The same request for a server that calls the model so: one field's bytes are replaced, the rest is copied."""
    name = _encode(model)
    renamed, count = _MODEL_VALUE.subn(lambda found: found[1] + name, body, count=1)
    if count and _model_decoder.decode(renamed).model == model:
        return renamed
    return _encode(_fields_decoder.decode(body) | {"model": msgspec.Raw(name)})


def with_reply_model(reply: bytes, model: bytes) -> bytes:
    """A reply or an event of a stream under the name that the client used, given as JSON; without a name, as it is."""
    return _MODEL_VALUE.sub(lambda found: found[1] + model, reply, count=1)


def _spliced(body: bytes, *, stream: bool, output_limit: int | None) -> bytes | None:
    """The request with the missing fields appended to its bytes. None if it has one of them, or another name of it.

    Searching a short body for the names is cheapest; a decoder skips the texts of a long one faster.
    """
    more, names = b"", [b"max_completion_tokens"]
    if stream:
        more += b',"stream_options":{"include_usage":true}'
        names.append(b"stream_options")
    if output_limit is not None:
        more += b',"max_tokens":%d' % output_limit
        names.append(b"max_tokens")
    if len(body) >= LONG_BODY_BYTES_MIN:
        given = _fields_decoder.decode(body)
        has_one = any(name.decode() in given for name in names)
    else:
        has_one = any(b'"%b"' % name in body for name in names)
    if has_one:
        return None
    end = body.rindex(b"}")
    return body[:end] + more + body[end:]


def as_stream(body: bytes) -> bytes:
    """The same request for a stream that ends in its token counts."""
    fields = _fields_decoder.decode(for_node(body, stream=True))
    fields["stream"] = msgspec.Raw(b"true")
    return _encode(fields)


# replies


def read_chunk(data: bytes) -> CompletionChunk | None:
    """The data of one event, or None if it is not a chunk."""
    return decode_or_none(_chunk_decoder, data)


def read_completion(body: bytes) -> Completion | None:
    return decode_or_none(_completion_decoder, body)


def read_usage(body: bytes) -> Usage | None:
    """The token counts of a whole reply, of any endpoint."""
    try:
        return _usage_decoder.decode(body).usage
    except UNREADABLE:
        return None


def with_usage(reply: bytes, counts: Usage, *, cost_usd: float | None = None) -> bytes:
    """The same chunk or whole reply with these token counts and their cost, and a server's details as far as they fit.

    Where only the cost is missing, it is spliced into the bytes.
    """
    given = _raw_usage_decoder.decode(reply).usage
    usage = _fields_or_null_decoder.decode(given) or {}
    if _is_counted_so(usage, counts):
        return reply if cost_usd is None else _with_cost(reply, bytes(given), usage, cost_usd)
    fields = _fields_decoder.decode(reply)
    total = counts.prompt_tokens + counts.completion_tokens
    ours = {"prompt_tokens": counts.prompt_tokens, "completion_tokens": counts.completion_tokens, "total_tokens": total}
    details = {
        "prompt_tokens_details": counts.prompt_tokens,
        "completion_tokens_details": counts.completion_tokens,
    }
    fitting = {name: usage[name] for name, most in details.items() if name in usage and _fits(usage[name], most)}
    cost = {} if cost_usd is None else {"cost": cost_usd}
    return _encode(fields | {"usage": _raw(ours | fitting | cost)})


def _is_counted_so(usage: Mapping[str, msgspec.Raw], counts: Usage) -> bool:
    """Whether a server's own counts are these, so that they can stay as they are."""
    total = counts.prompt_tokens + counts.completion_tokens
    if usage.keys() - _COUNTS:
        return False
    expected = {"prompt_tokens": counts.prompt_tokens, "total_tokens": total}
    if counts.completion_tokens or "completion_tokens" in usage:  # vectors have none
        expected["completion_tokens"] = counts.completion_tokens
    return all(bytes(usage.get(name, NULL)) == b"%d" % count for name, count in expected.items())


_COUNTS = {"prompt_tokens", "completion_tokens", "total_tokens"}
_details_decoder = msgspec.json.Decoder(dict[str, int | None] | None)


def _fits(details: msgspec.Raw, most: int) -> bool:
    """Whether these are parts of so many tokens."""
    try:
        found = _details_decoder.decode(details) or {}
    except UNREADABLE:
        return False
    return all(0 <= (count or 0) <= most for count in found.values())


def _with_cost(reply: bytes, given: bytes, usage: Mapping[str, msgspec.Raw], cost_usd: float) -> bytes:
    if reply.count(given) == 1:  # it is not inside a text either
        return reply.replace(given, b'%b,"cost":%b}' % (given[:-1], _encode(cost_usd)))
    return _encode(_fields_decoder.decode(reply) | {"usage": _raw({**usage, "cost": cost_usd})})


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


# errors


def read_error_message(body: bytes) -> str | None:
    """The message of another server's error reply, in any of the shapes that servers use."""
    try:
        reply: Any = msgspec.json.decode(body)
    except UNREADABLE:
        return None
    if isinstance(reply, Mapping):
        reply = reply.get("error", reply)
    if isinstance(reply, Mapping):
        reply = reply.get("message", reply.get("detail"))
    return reply[:500] if isinstance(reply, str) else None


def error_body(error: SparewattError, **extra: object) -> dict[str, Any]:
    """OpenAI's error object: always all four keys, and `extra`."""
    shape = {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}
    return {"error": shape | extra}


def error_headers(error: SparewattError) -> dict[str, str]:
    """The headers of an error reply: when to retry, and whether a client should retry at all."""
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        wait_s = min(error.retry_after_s, RETRY_AFTER_S_MAX)
        headers |= {"retry-after": str(math.ceil(wait_s)), "retry-after-ms": str(math.ceil(wait_s * 1000))}
    if not error.retryable and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        headers["x-should-retry"] = "false"
    return headers
