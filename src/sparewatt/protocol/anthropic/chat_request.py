"""A request to `/v1/messages` as a chat request."""

from __future__ import annotations

from typing import NamedTuple

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.anthropic.content import to_messages
from sparewatt.protocol.anthropic.request import Json, MessagesRequest, ParsedMessagesRequest
from sparewatt.protocol.anthropic.tools import offered_tools

_SAME_NAME = ("max_tokens", "temperature", "top_p", "top_k")
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Servers know three."""
_SCHEMA_NAME = "answer"
"""A chat's schema has a name, one of Anthropic's has none."""


class TranslatedChat(NamedTuple):
    fields: Json
    ignored: tuple[str, ...]
    """What of the request has no effect."""


def to_chat(parsed: ParsedMessagesRequest) -> TranslatedChat:
    """Raises InvalidField, UnsupportedContent or UnsupportedParameter."""
    request = parsed.request
    messages = to_messages(request.messages, system=request.system)
    if not messages:
        raise InvalidField("There is nothing to answer: send messages with content.", param="messages")
    tools = offered_tools(request.tools, request.tool_choice)
    chat: Json = {"model": request.model, "messages": messages}
    if request.stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    chat |= {name: value for name in _SAME_NAME if (value := getattr(request, name)) is not None}
    if request.stop_sequences:
        chat["stop"] = request.stop_sequences
    chat |= tools.fields | _reasoning(request) | _format(request) | _prefill(messages)
    chat |= {"provider": request.provider} if bytes(request.provider) else {}
    return TranslatedChat(chat, (*parsed.ignored, *tools.ignored))


def _reasoning(request: MessagesRequest) -> Json:
    """Templates of models that can do both have a switch for thinking. It is set only if the client says so."""
    fields: Json = {}
    if request.thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": request.thinking.type != "disabled"}
    effort = request.output_config.effort if request.output_config is not None else None
    if effort is not None:
        if effort not in _EFFORTS:
            text = f"The effort is one of {', '.join(_EFFORTS)}."
            raise InvalidField(text, param="output_config.effort")
        fields["reasoning_effort"] = _EFFORTS[effort]
    return fields


def _format(request: MessagesRequest) -> Json:
    given = (request.output_config.format if request.output_config is not None else None) or request.output_format
    match given:
        case None:
            return {}
        case {"type": "json_schema", "schema": dict(schema)}:
            named = {"name": _SCHEMA_NAME, "schema": schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case _:
            raise InvalidField(
                "A format has the type json_schema and a schema.",
                param="output_format" if request.output_format else "output_config.format",
            )


def _prefill(messages: list[Json]) -> Json:
    """An assistant's text at the end is continued, not answered: for servers that have to be told."""
    last = messages[-1]
    if last["role"] != "assistant" or "tool_calls" in last:
        return {}
    return {"continue_final_message": True, "add_generation_prompt": False}
