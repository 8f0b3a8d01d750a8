"""POST /v1/chat/completions."""

from __future__ import annotations

import msgspec

from sparewatt.core.limits import LONG_BODY_BYTES_MIN
from sparewatt.gateway.openai.call import Call
from sparewatt.gateway.openai.reading import is_text_alone, needs_of
from sparewatt.inference.admission.sizing import has_media, size_of
from sparewatt.protocol.link import JobPath
from sparewatt.protocol.openai import fields_of, parse_chat, parse_plain
from sparewatt.protocol.parameters import foreign_fields, ignored_fields

PATH: JobPath = "/v1/chat/completions"
_DEVELOPER = b'"developer"'
_LIMITS = ("max_tokens", "max_completion_tokens")


def read_chat(body: bytes) -> Call:
    """Raises InvalidJson, InvalidField, BodyTooLarge or UnsupportedContent."""
    plain = parse_plain(body)
    chat = plain or parse_chat(body)
    messages = tuple(map(bytes, chat.messages))
    odd = [body]
    """What may hold anything else than texts."""
    if len(body) >= LONG_BODY_BYTES_MIN:
        odd = [message for message in messages if not is_text_alone(message)]
    has_developer = any(_DEVELOPER in part for part in odd)
    is_unlimited = chat.max_tokens == 0 or chat.max_completion_tokens == 0
    fields = fields_of(body) if plain is None or is_unlimited or has_developer else {}
    if is_unlimited:
        fields |= {name: msgspec.Raw(b"%d" % (chat.output_limit or 1)) for name in _LIMITS if name in fields}
        body = msgspec.json.encode(fields)
    if has_developer:
        messages = tuple(map(_as_system, messages))
        fields["messages"] = msgspec.Raw(b"[%b]" % b",".join(messages))
        body = msgspec.json.encode(fields)
    holds_media = any(map(has_media, odd))
    return Call(
        path=PATH,
        model=chat.model,
        body=body,
        size=size_of(messages, is_text=not holds_media),
        prompt=messages,
        is_text=not holds_media,
        provider=bytes(chat.provider),
        stream=bool(chat.stream),
        wants_usage=chat.wants_usage,
        output_limit=chat.output_limit,
        answers=chat.n or 1,
        needs=needs_of(chat, messages if holds_media else ()),
        foreign=foreign_fields(fields, PATH),
        ignored=ignored_fields(fields, PATH),
    )


def _as_system(message: bytes) -> bytes:
    """OpenAI's newer name for the role; most chat templates know only the older one."""
    if _DEVELOPER not in message:
        return message
    try:
        fields = fields_of(message)
    except msgspec.DecodeError:
        return message
    if bytes(fields.get("role", b"")) != _DEVELOPER:
        return message
    return msgspec.json.encode(fields | {"role": "system"})
