"""POST /v1/chat/completions: a body becomes a `ModelCall`, with the capabilities that it needs of a node's model.

This is on the path of every request: a chat without anything unusual is decoded once, and its messages stay raw JSON.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET

from sparewatt.api.inference.legacy_filter import LegacyFunctionCalls
from sparewatt.inference.call import ModelCall, ReplyFilter
from sparewatt.inference.capabilities import fetch_capability
from sparewatt.inference.prompt import chat_units, size_of
from sparewatt.protocol.link.frames import JobPath
from sparewatt.protocol.link.node_report import Capability
from sparewatt.protocol.openai.chat import NULL, ChatRequest, fields_of, models_of, parse_chat, parse_plain
from sparewatt.protocol.openai.chat_checks import check_choice, check_format, check_list, check_role
from sparewatt.protocol.openai.legacy_functions import is_legacy, message_with_tools, with_tools
from sparewatt.protocol.openai.media import NO_MEDIA, PROCESSOR_OPTIONS, MessageMedia, check_processor_options, media_in
from sparewatt.protocol.openai.parameters import ignored_fields, unknown_fields

PATH: JobPath = "/v1/chat/completions"
_DEVELOPER = b'"developer"'
_TOOL_CHOICES = ("auto", "none", "required")
_LIMITS = ("max_tokens", "max_completion_tokens")
_CHAT_ALONE: frozenset[Capability] = frozenset({"chat"})
"""What nearly every request needs."""
_EMPTY = (b"null", b"[]", b"false", b"")


def read_chat(body: bytes) -> ModelCall:
    """Raises InvalidJson, InvalidField, BodyTooLarge, UnsupportedContent, UnsupportedParameter or RemoteUrlRefused."""
    plain = parse_plain(body)
    if plain is not None:
        return _call_of(body, plain, {})
    chat = parse_chat(body)
    fields = fields_of(body)
    if not is_legacy(fields):
        return _call_of(body, chat, fields)
    body = msgspec.json.encode(with_tools(fields))
    return _call_of(body, parse_chat(body), fields_of(body), reply_filter=LegacyFunctionCalls())


def _call_of(
    body: bytes, chat: ChatRequest, fields: dict[str, msgspec.Raw], *, reply_filter: ReplyFilter | None = None
) -> ModelCall:
    """`fields`: of the body, or nothing if all of them are usual ones."""
    messages = tuple(map(bytes, chat.messages))
    to_search = [place for place, message in enumerate(messages) if not _is_text_alone(message)]
    rewritten = {place: _for_servers(messages[place], place) for place in to_search}
    has_other_messages = any(after is not messages[place] for place, after in rewritten.items())
    has_zero_limit = chat.max_tokens == 0 or chat.max_completion_tokens == 0
    _check(chat)
    model, *fallbacks = models_of(chat.model, chat.models)
    fields = fields or (fields_of(body) if chat.models is not UNSET or has_zero_limit or has_other_messages else {})
    if chat.models is not UNSET:
        body = with_one_model(fields, model)
    if has_zero_limit:
        fields |= {name: msgspec.Raw(b"%d" % (chat.output_limit or 1)) for name in _LIMITS if name in fields}
        body = msgspec.json.encode(fields)
    if has_other_messages:
        messages = tuple(rewritten.get(place, message) for place, message in enumerate(messages))
        fields["messages"] = msgspec.Raw(b"[%b]" % b",".join(messages))
        body = msgspec.json.encode(fields)
    media = media_in([messages[place] for place in to_search]) if to_search else NO_MEDIA
    check_processor_options(fields.get(PROCESSOR_OPTIONS))
    return ModelCall(
        path=PATH,
        model=model,
        body=body,
        size=msgspec.structs.replace(
            size_of(messages, is_text=not media.has_pictures),
            units=chat_units(messages, tools=bytes(chat.tools) if is_given(chat.tools) else b""),
        ),
        prompt=messages,
        is_text=not media.has_pictures,
        provider=bytes(chat.provider),
        stream=bool(chat.stream),
        wants_usage=chat.wants_usage,
        output_limit=chat.output_limit,
        answers=chat.n or 1,
        needs=_needs_of(chat, media),
        foreign=unknown_fields(fields, PATH),
        ignored=_ignored(fields),
        stores=_stores(fields),
        reply_filter=reply_filter,
        fallbacks=tuple(fallbacks),
    )


def _stores(fields: dict[str, msgspec.Raw]) -> bool:
    return bytes(fields.get("store", NULL)) == b"true"


def _ignored(fields: dict[str, msgspec.Raw]) -> tuple[str, ...]:
    """What is stored has its metadata."""
    ignored = ignored_fields(fields, PATH)
    return tuple(name for name in ignored if name not in ("store", "metadata")) if _stores(fields) else ignored


def _check(chat: ChatRequest) -> None:
    """Raises InvalidField for what a server would ignore, or refuse in its own words."""
    if chat.response_format is not NULL:
        check_format(bytes(chat.response_format))
    if chat.tools is not NULL:
        check_list(bytes(chat.tools), "tools")
    if chat.tool_choice is not NULL:
        check_choice(bytes(chat.tool_choice), "tool_choice", _TOOL_CHOICES)


def with_one_model(fields: dict[str, msgspec.Raw], model: str) -> bytes:
    """A body that names the first of several models; `fields` is changed as well."""
    fields.pop("models")
    fields["model"] = msgspec.Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def is_given(value: msgspec.Raw) -> bool:
    """Whether an optional field is more than null, false or empty."""
    return bytes(value) not in _EMPTY


# messages


class _TextMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message whose content is a text, or nothing. The text is skipped, not decoded."""

    role: Literal["user", "assistant", "system", "tool"]
    content: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    tool_calls: msgspec.Raw = NULL
    tool_call_id: msgspec.Raw = NULL


_text_decoder = msgspec.json.Decoder(_TextMessage)


def _is_text_alone(message: bytes) -> bool:
    """Whether a raw message surely has a role that every model server knows, and holds nothing but text.

    Skipping a long text takes a tenth of the time of searching it; and a search misses names with escapes in them.
    """
    try:
        content = bytes(_text_decoder.decode(message).content)
    except msgspec.DecodeError:
        return False  # unsure: the message is searched
    return content.startswith((b'"', b"null"))


def _for_servers(message: bytes, position: int) -> bytes:
    """A message whose role was checked, in the words that every model server knows. Raises InvalidField."""
    check_role(message, position)
    return _as_system(message_with_tools(message, position))


def _as_system(message: bytes) -> bytes:
    """`developer` is OpenAI's newer name of the role `system`; most chat templates know only the older one."""
    if _DEVELOPER not in message:
        return message
    try:
        fields = fields_of(message)
    except msgspec.DecodeError:
        return message
    if bytes(fields.get("role", b"")) != _DEVELOPER:
        return message
    return msgspec.json.encode(fields | {"role": "system"})


# required capabilities


class _Typed(msgspec.Struct, frozen=True):
    """A response format."""

    type: str = ""


def _needs_of(chat: ChatRequest, media: MessageMedia) -> frozenset[str]:
    if not media.has_pictures and chat.tools is NULL and chat.response_format is NULL and not chat.logprobs:
        return _CHAT_ALONE
    needs: set[str] = {"chat", *map(fetch_capability, media.hosts())}
    if is_given(chat.tools) and bytes(chat.tool_choice) != b'"none"':
        needs.add("tools")
    if _format_of(chat.response_format) == "json_schema":
        needs.add("json_schema")
    if chat.logprobs:
        needs.add("logprobs")
    if media.has_pictures:
        needs.add("vision")
    return frozenset(needs)


def _format_of(value: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(value, type=_Typed).type if is_given(value) else ""
    except msgspec.DecodeError:
        return ""  # the node's model server refuses it with a reason
