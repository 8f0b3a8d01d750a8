"""A request to `/v1/responses` as a chat request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, ResponsesRequest, TextOptions
from sparewatt.protocol.responses.tools import ToolSelection, chat_tools

_SAME_NAME = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def to_chat(asked: ParsedResponsesRequest, messages: Sequence[Json], tools: ToolSelection) -> Json:
    """Raises InvalidField for a text format that means nothing."""
    request = asked.request
    chat: Json = {"model": request.model, "messages": list(messages)}
    if request.stream or request.background:  # in the background too: what is there when it is cancelled can be kept
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    chat |= {name: value for name in _SAME_NAME if (value := getattr(request, name)) is not None}
    chat |= chat_tools(tools)
    if request.parallel_tool_calls is not None and tools.functions:
        chat["parallel_tool_calls"] = request.parallel_tool_calls
    if request.max_output_tokens is not None:
        chat["max_tokens"] = request.max_output_tokens
    if request.reasoning is not None and request.reasoning.effort is not None:
        chat["reasoning_effort"] = request.reasoning.effort
    if request.wants_logprobs:
        chat |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    return chat | _response_format(request) | asked.extras | _provider(request)


def _provider(request: ResponsesRequest) -> dict[str, msgspec.Raw]:
    return {"provider": request.provider} if bytes(request.provider) else {}


def _response_format(request: ResponsesRequest) -> Json:
    wanted = text_format(request.text)
    if wanted["type"] == "text":
        return {}
    if wanted["type"] == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = {name: wanted[name] for name in ("name", "description", "schema", "strict") if wanted[name] is not None}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def text_format(text: TextOptions | None) -> Json:
    """The format of the answer, in full. Raises InvalidField."""
    given = text.format if text is not None else None
    match given:
        case None | {"type": "text"}:
            return {"type": "text"}
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "name": str(name), "schema": dict(schema)}:
            return {
                "type": "json_schema",
                "name": name,
                "description": given.get("description"),
                "schema": schema,
                "strict": bool(given.get("strict")),
            }
        case {"type": "json_schema"}:
            raise InvalidField("A format of the type json_schema has a name and a schema.", param="text.format")
        case _:
            raise InvalidField("The type of a format is text, json_object or json_schema.", param="text.format.type")
