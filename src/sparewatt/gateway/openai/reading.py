"""What a chat asks of a node's model, told from its body: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from sparewatt.core.errors import UnsupportedContent
from sparewatt.inference.admission.sizing import has_media
from sparewatt.protocol.node import Capability
from sparewatt.protocol.openai import NULL, ChatRequest

_CHAT_ALONE: frozenset[Capability] = frozenset({"chat"})
"""What nearly every request needs."""
_NOTHING = (b"null", b"[]", b"false", b"")
_PICTURES = ("image_url",)
_NOT_CARRIED = ("input_audio", "audio_url", "video_url", "file")


class _Part(msgspec.Struct, frozen=True):
    type: str = ""


class _Message(msgspec.Struct, frozen=True):
    content: list[_Part] | str | None = None


class _TextMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One whose content is a text, or nothing. It is skipped, not decoded."""

    role: Literal["user", "assistant", "system", "tool"]
    content: msgspec.Raw = NULL
    name: msgspec.Raw = NULL
    tool_calls: msgspec.Raw = NULL
    tool_call_id: msgspec.Raw = NULL


class _Format(msgspec.Struct, frozen=True):
    type: str = ""


_text_decoder = msgspec.json.Decoder(_TextMessage)


def is_text_alone(message: bytes) -> bool:
    """Whether a raw message is surely of a role that every server knows, and holds nothing else than a text.

    For long ones: to have their text skipped takes a tenth of the time that it takes to search it for what it may hold.
    """
    try:
        content = bytes(_text_decoder.decode(message).content)
    except msgspec.DecodeError:
        return False  # it is looked at more closely
    return content.startswith((b'"', b"null"))


def needs_of(chat: ChatRequest, messages: Sequence[bytes]) -> frozenset[Capability]:
    """`messages`: those that may hold more than text. Raises UnsupportedContent for a part that no node takes."""
    if not messages and chat.tools is NULL and chat.response_format is NULL and chat.logprobs is NULL:
        return _CHAT_ALONE
    needs: set[Capability] = {"chat"}
    if is_there(chat.tools) and bytes(chat.tool_choice) != b'"none"':
        needs.add("tools")
    if _format_of(chat.response_format) == "json_schema":
        needs.add("json_schema")
    if is_there(chat.logprobs):
        needs.add("logprobs")
    if _has_pictures(messages):
        needs.add("vision")
    return frozenset(needs)


def is_there(value: msgspec.Raw) -> bool:
    return bytes(value) not in _NOTHING


def _format_of(value: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(value, type=_Format).type if is_there(value) else ""
    except msgspec.DecodeError:
        return ""  # the node's server says what is wrong with it


def _has_pictures(messages: Iterable[bytes]) -> bool:
    found = {kind for message in messages if has_media(message) for kind in _part_types(message)}
    refused = sorted(found.intersection(_NOT_CARRIED))
    if refused:
        raise UnsupportedContent(f"No node here takes parts of type {refused[0]!r}.", param="messages")
    return not found.isdisjoint(_PICTURES)


def _part_types(message: bytes) -> Iterator[str]:
    try:
        content = msgspec.json.decode(message, type=_Message).content
    except msgspec.DecodeError:
        return  # as above
    if isinstance(content, list):
        yield from (part.type for part in content)
