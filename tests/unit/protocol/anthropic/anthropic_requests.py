"""Requests to `/v1/messages` for tests, and what they become."""

from __future__ import annotations

import json
from typing import Any

from sparewatt.protocol.anthropic.chat_request import to_chat
from sparewatt.protocol.anthropic.request import ParsedMessagesRequest, parse_messages
from sparewatt.protocol.anthropic.translator import MessageTranslator
from sparewatt.protocol.responses.chat_chunks import StreamChunk
from tests.unit.protocol.responses.builders import counting_ids

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}


def text(value: str, **more: Any) -> Json:
    return {"type": "text", "text": value, **more}


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [text(each) if isinstance(each, str) else each for each in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return user(*blocks) | {"role": "assistant"}


def use(name: str = "look", call_id: str = "toolu_1", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(content: Any = "found", call_id: str = "toolu_1", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def parsed(**fields: Any) -> ParsedMessagesRequest:
    given = {"model": "llama", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]} | fields
    return parse_messages(json.dumps(given).encode())


def chat_of(**fields: Any) -> Json:
    """The chat that a request becomes, as a node would read it."""
    made = to_chat(parsed(**fields)).fields
    read: Json = json.loads(json.dumps(made, default=lambda raw: json.loads(bytes(raw))))
    return read


def messages_of(*turns: Json, **fields: Any) -> list[Json]:
    messages: list[Json] = chat_of(messages=list(turns), **fields)["messages"]
    return messages


def a_translator(*, shows_thinking: bool = False, stops: tuple[str, ...] = ()) -> MessageTranslator:
    return MessageTranslator(
        message_id="msg_1", model="llama", shows_thinking=shows_thinking, stops=stops, new_id=counting_ids()
    )


def events_of(translator: MessageTranslator, *chunks: StreamChunk) -> list[Json]:
    """All events of a message made of these chunks."""
    events = translator.begin()
    for one in chunks:
        events += translator.feed(one)
    return events + translator.finish()


def kinds(events: list[Json]) -> list[str]:
    """What each event is, without the frame of every stream; a block's start with its type."""
    names = [event["type"].removeprefix("content_block_") for event in events]
    return [
        event["content_block"]["type"] if name == "start" else name
        for name, event in zip(names, events, strict=True)
        if name not in ("message_start", "ping", "message_delta", "message_stop")
    ]


def whole_of(translator: MessageTranslator, *chunks: StreamChunk) -> Json:
    events_of(translator, *chunks)
    return translator.whole()
