"""`functions` and `function_call`, which OpenAI replaced by tools in 2023: written as tools for model servers, and
their replies written back for the clients that still use them.

The older way knows one call in an answer: of several, the first is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.openai.chat import UNREADABLE

FIELDS = frozenset({"functions", "function_call"})
_MARKS = (b'"function_call"', b'"function"')
"""In a message of an earlier turn."""
_NULL = msgspec.Raw(b"null")

_list_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_decoder = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.encode
Body = dict[str, msgspec.Raw]


def is_legacy(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a request has functions, and no tools beside them."""
    return bytes(fields.get("functions", _NULL)) != b"null" and bytes(fields.get("tools", _NULL)) == b"null"


def with_tools(fields: Body) -> Body:
    """The request with tools in place of functions. Raises InvalidField."""
    try:
        functions = _list_decoder.decode(fields["functions"])
    except UNREADABLE:
        raise InvalidField("'functions' must be a list of objects.", param="functions") from None
    kept = {name: value for name, value in fields.items() if name not in FIELDS}
    tools = [{"type": "function", "function": each} for each in functions]
    choice = _choice_of(bytes(fields.get("function_call", _NULL)))
    return {
        **kept,
        "tools": msgspec.Raw(_encode(tools)),
        **({} if choice is None else {"tool_choice": msgspec.Raw(choice)}),
        "parallel_tool_calls": msgspec.Raw(b"false"),
    }


def _choice_of(value: bytes) -> bytes | None:
    if value == b"null":
        return None
    if value in (b'"auto"', b'"none"'):
        return value
    try:
        name = bytes(_object_decoder.decode(value)["name"])
    except (*UNREADABLE, KeyError):
        raise InvalidField(
            "'function_call' must be auto, none, or an object with the name of a function.", param="function_call"
        ) from None
    return b'{"type":"function","function":{"name":%b}}' % name


def message_with_tools(message: bytes, position: int) -> bytes:
    """A message of an earlier turn, its call or its result as those of a tool. Calls have no id: their name is it."""
    if not any(mark in message for mark in _MARKS):
        return message
    try:
        fields = _any_decoder.decode(message)
        if fields.get("role") == "function":
            name = str(fields.pop("name", ""))
            return _encode({**fields, "role": "tool", "tool_call_id": f"call_{name}"})
        call = fields.pop("function_call", None)
        if call is None:
            return message
        called = {"id": f"call_{call['name']}", "type": "function", "function": call}
        return _encode({**fields, "content": fields.get("content"), "tool_calls": [called]})
    except (*UNREADABLE, KeyError, TypeError):
        field = f"messages[{position}].function_call"
        raise InvalidField(f"'{field}' must be an object with a name and arguments.", param=field) from None


def with_function_call(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice of a reply, whole or of a stream, with its first tool call as such clients know it."""
    place = "delta" if "delta" in choice else "message"
    message = dict(choice.get(place) or {})
    calls = message.pop("tool_calls", None) or []
    first = next((call for call in calls if call.get("index", 0) == 0), None)
    if first is not None:
        message["function_call"] = first.get("function") or {}
    finish = "function_call" if choice.get("finish_reason") == "tool_calls" else choice.get("finish_reason")
    return {**choice, place: message, "finish_reason": finish}
