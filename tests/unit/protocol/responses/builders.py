"""Requests and chunks for the tests of the translation, with ids that count up."""

from __future__ import annotations

import itertools
import json
from typing import Any

from sparewatt.protocol.responses.chat_chunks import StreamChunk, read_chunk
from sparewatt.protocol.responses.chat_request import to_chat, to_messages
from sparewatt.protocol.responses.input_items import NewId, read_input
from sparewatt.protocol.responses.request import ParsedResponsesRequest, parse_request
from sparewatt.protocol.responses.response_object import new_response
from sparewatt.protocol.responses.tools import read_tools
from sparewatt.protocol.responses.translator import ResponseTranslator

Json = dict[str, Any]

USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}


def counting_ids() -> NewId:
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}_{next(numbers)}"


def parsed_request(**fields: Any) -> ParsedResponsesRequest:
    return parse_request(json.dumps({"model": "llama", "input": "Hi"} | fields).encode())


def chat_of(**fields: Any) -> Json:
    """The chat that a request becomes, as a node would read it."""
    one = parsed_request(**fields)
    items = read_input(one.request.input, new_id=counting_ids())
    messages = to_messages(items, instructions=one.request.instructions)
    tools = read_tools(one.request.tools, one.request.tool_choice)
    made: Json = json.loads(json.dumps(to_chat(one, messages, tools), default=lambda raw: json.loads(bytes(raw))))
    return made


def messages_of(*items: Json, **fields: Any) -> list[Json]:
    messages: list[Json] = chat_of(input=list(items), **fields)["messages"]
    return messages


def a_translator(**fields: Any) -> ResponseTranslator:
    request = parsed_request(**fields).request
    tools = read_tools(request.tools, request.tool_choice)
    response = new_response(request, tools, response_id="resp_1", created_at=100, stored=bool(request.store))
    return ResponseTranslator(response, new_id=counting_ids())


def chunk(delta: Json | None = None, *, finish: str | None = None, **more: Any) -> StreamChunk:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **more}
    read = read_chunk(json.dumps({"choices": [choice]}).encode())
    assert read is not None
    return read


def usage_chunk(**usage: Any) -> StreamChunk:
    read = read_chunk(json.dumps({"choices": [], "usage": usage}).encode())
    assert read is not None
    return read


def call_delta(arguments: str, *, index: int | None = 0, name: str | None = None, call_id: str | None = None) -> Json:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    call: Json = {"function": function} | ({"id": call_id} if call_id else {})
    return {"tool_calls": [call | ({"index": index} if index is not None else {})]}


def events_of(translator: ResponseTranslator, *chunks: StreamChunk) -> list[Json]:
    """All events of a response made of these chunks."""
    events = translator.begin()
    for one in chunks:
        events += translator.feed(one)
    events += translator.finish(now=200)
    return events + translator.final_events()


def kinds(events: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


FINISH = chunk(finish="stop")
