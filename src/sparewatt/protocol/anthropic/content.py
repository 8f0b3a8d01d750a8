"""The conversation of a request as the messages of a chat: blocks become texts, pictures, tool calls and their results.

Results of tools come first in their turn, since chat templates expect them right behind the calls. Servers take text
alone as a result, so a result's pictures go into the user's message that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField, UnsupportedContent
from sparewatt.protocol.anthropic.request import Json, MessageTurn

_JOINT = "\n\n"
"""Between blocks of text that become one."""
_NO_TEXT = "A block of this type has a text."
_ERROR_MARK = "Error: "
"""Before the result of a tool that failed: a chat has no field for that."""


def to_messages(turns: Sequence[MessageTurn], *, system: str | Sequence[Json] | None) -> list[Json]:
    """Neighbouring turns of one role become one, as at Anthropic. Raises InvalidField or UnsupportedContent."""
    messages: list[Json] = []
    text = _system_text(system)
    if text:
        messages.append({"role": "system", "content": text})
    numbered = [
        (turn.role, f"messages.{i}.content.{j}", block)
        for i, turn in enumerate(turns)
        for j, block in enumerate(turn.blocks() or [{"type": "text", "text": ""}])
    ]
    for role, group in groupby(numbered, key=lambda each: each[0]):
        blocks = [(at, block) for _, at, block in group]
        match role:
            case "user":
                messages += _user_messages(blocks)
            case "assistant":
                messages.append(_assistant_message(blocks))
            case _:
                messages.append({"role": "system", "content": _JOINT.join(_text(b, at=at) for at, b in blocks)})
    return messages


def _system_text(system: str | Sequence[Json] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    return _JOINT.join(_text(block, at=f"system.{i}") for i, block in enumerate(system))


def _text(block: Json, *, at: str) -> str:
    if block.get("type") != "text":
        raise UnsupportedContent("Only blocks of the type 'text' can stand here.", param=f"{at}.type")
    return _string(block, "text", at=at)


def _string(block: Json, name: str, *, at: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise InvalidField(f"The field {name!r} of this block is text.", param=f"{at}.{name}")
    return value


# the user's


def _user_messages(blocks: Sequence[tuple[str, Json]]) -> list[Json]:
    results: list[Json] = []
    parts: list[Json] = []
    for at, block in blocks:
        if block.get("type") != "tool_result":
            parts += _parts(block, at=at)
            continue
        texts, pictures = _result(block, at=at)
        results.append({"role": "tool", "tool_call_id": _string(block, "tool_use_id", at=at), "content": texts})
        parts += pictures
    return [*results, {"role": "user", "content": _content(parts)}] if parts else results


def _parts(block: Json, *, at: str) -> list[Json]:
    match block.get("type"):
        case "text":
            return [{"type": "text", "text": _string(block, "text", at=at)}]
        case "image":
            return [{"type": "image_url", "image_url": {"url": _picture_url(block.get("source"), at=f"{at}.source")}}]
        case "document":
            return _document(block, at=at)
        case kind:
            raise UnsupportedContent(
                f"Blocks of the type {str(kind)[:40]!r} cannot be sent to a node. Send text, images and tool results.",
                param=f"{at}.type",
            )


def _picture_url(source: Any, *, at: str) -> str:
    match source:
        case {"type": "base64", "media_type": str(kind), "data": str(data)} if kind.startswith("image/"):
            return f"data:{kind};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
        case _:
            raise UnsupportedContent(
                "A picture is sent as base64: {'type': 'base64', 'media_type': 'image/png', 'data': …}.", param=at
            )


def _document(block: Json, *, at: str) -> list[Json]:
    """Documents of plain text. No node reads PDF files."""
    title = [block["title"]] if isinstance(block.get("title"), str) else []
    match block.get("source"):
        case {"type": "text", "data": str(text)}:
            return [{"type": "text", "text": "\n".join([*title, text])}]
        case {"type": "content", "content": str(text)}:
            return [{"type": "text", "text": "\n".join([*title, text])}]
        case {"type": "content", "content": list(inner)}:
            return [part for i, each in enumerate(inner) for part in _inner_parts(each, at=f"{at}.source.content.{i}")]
        case _:
            raise UnsupportedContent("No node reads files. Send the document's text.", param=f"{at}.source")


def _inner_parts(block: Any, *, at: str) -> list[Json]:
    """Of a block within a block: text and pictures, and no further nesting."""
    if not isinstance(block, dict) or block.get("type") not in ("text", "image"):
        raise UnsupportedContent("Only text and images can stand within another block.", param=at)
    return _parts(block, at=at)


def _result(block: Json, *, at: str) -> tuple[str, list[Json]]:
    """The text of a tool's result, and its pictures."""
    content = block.get("content")
    mark = _ERROR_MARK if block.get("is_error") is True else ""
    if content is None or isinstance(content, str):
        return mark + (content or ""), []
    if not isinstance(content, list):
        raise InvalidField("The content of a tool's result is text or a list of blocks.", param=f"{at}.content")
    parts = [part for i, each in enumerate(content) for part in _result_parts(each, at=f"{at}.content.{i}")]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    pictures = [part for part in parts if part["type"] != "text"]
    return mark + _JOINT.join(texts), pictures


def _result_parts(block: Any, *, at: str) -> list[Json]:
    """A reference to a tool that the client has found is its name: the tool itself is in `tools` by then."""
    match block:
        case {"type": "tool_reference", "tool_name": str(name)}:
            return [{"type": "text", "text": name}]
        case {"type": "document"}:
            return _document(block, at=at)
        case _:
            return _inner_parts(block, at=at)


def _content(parts: Sequence[Json]) -> str | list[Json]:
    """A string if it is text only: every server accepts that."""
    if all(part["type"] == "text" for part in parts):
        return _JOINT.join(part["text"] for part in parts)
    return list(parts)


# the assistant's


def _assistant_message(blocks: Sequence[tuple[str, Json]]) -> Json:
    """Thinking goes back as reasoning. What was encrypted for Anthropic's own models says nothing to others."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[Json] = []
    for at, block in blocks:
        match block.get("type"):
            case "text":
                texts.append(_string(block, "text", at=at))
            case "thinking":
                reasoning.append(_string(block, "thinking", at=at))
            case "redacted_thinking":
                pass
            case "tool_use":
                calls.append(_tool_call(block, at=at))
            case kind:
                raise UnsupportedContent(
                    f"Blocks of the type {str(kind)[:40]!r} of an assistant cannot be sent to a node.",
                    param=f"{at}.type",
                )
    message: Json = {"role": "assistant", "content": _JOINT.join(texts) if texts or not calls else None}
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    return message | ({"tool_calls": calls} if calls else {})


def _tool_call(block: Json, *, at: str) -> Json:
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        raise InvalidField("The input of a tool is an object.", param=f"{at}.input")
    function = {"name": _string(block, "name", at=at), "arguments": msgspec.json.encode(arguments).decode()}
    return {"id": _string(block, "id", at=at), "type": "function", "function": function}
