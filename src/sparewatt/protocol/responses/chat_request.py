"""A request to `/v1/responses` as a chat request: its items as messages, its options as fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.responses.request import Json, ParsedResponsesRequest, TextOptions
from sparewatt.protocol.responses.tools import ToolSelection, chat_tools

_SAME_NAME = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_SYSTEM = ("system", "developer")


def to_chat(parsed: ParsedResponsesRequest, messages: Sequence[Json], tools: ToolSelection) -> Json:
    """Raises InvalidField for an invalid text format."""
    request = parsed.request
    chat: Json = {"model": request.model, "messages": list(messages)}
    if request.stream or request.background:  # a background response too: when cancelled, it keeps what was written
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
    chat |= _response_format(text_format(request.text)) | parsed.extras
    return chat | ({"provider": request.provider} if bytes(request.provider) else {})


def _response_format(text: Json) -> Json:
    if text["type"] == "text":
        return {}
    if text["type"] == "json_object":
        return {"response_format": text}
    schema = {name: value for name, value in text.items() if name != "type" and value is not None}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def text_format(text: TextOptions | None) -> Json:
    """The format of the answer with all its fields. Raises InvalidField."""
    given = text.format if text is not None else None
    match given:
        case None | {"type": "text"}:
            return {"type": "text"}
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "name": str(name), "schema": dict(schema)}:
            described = {} if given.get("description") is None else {"description": given["description"]}
            strict = bool(given.get("strict"))
            return {"type": "json_schema", "name": name, **described, "schema": schema, "strict": strict}
        case {"type": "json_schema"}:
            raise InvalidField("A format of the type json_schema has a name and a schema.", param="text.format")
        case _:
            raise InvalidField("The type of a format is text, json_object or json_schema.", param="text.format.type")


# messages


def to_messages(items: Sequence[Json], *, instructions: str | None) -> list[Json]:
    """Items as the messages of a chat. Compactions must have been expanded.

    Leading system messages become one: chat templates accept only one, and only there. Tool calls go with the
    assistant's message before them, reasoning with the one after it.
    """
    system = [instructions] if instructions else []
    rest = list(items)
    while rest and _is_system_text(rest[0]):
        system.append(_joined(rest.pop(0)["content"]))
    messages: list[Json] = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    reasoning = ""
    for item in rest:
        match item["type"]:
            case "message":
                messages.append(_with_reasoning(_message(item), reasoning))
                reasoning = ""
            case "function_call":
                _add_call(messages, item, reasoning)
                reasoning = ""
            case "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _content(item["output"])})
            case "reasoning":
                reasoning += "".join(part["text"] for part in item["content"] or item["summary"])
    return messages


def _is_system_text(item: Json) -> bool:
    is_system = item["type"] == "message" and item["role"] in _SYSTEM
    return is_system and all("text" in part for part in item["content"])


def _message(item: Json) -> Json:
    role = "system" if item["role"] in _SYSTEM else item["role"]
    return {"role": role, "content": _content(item["content"])}


def _with_reasoning(message: Json, reasoning: str) -> Json:
    return message | {"reasoning_content": reasoning} if reasoning and message["role"] == "assistant" else message


def _add_call(messages: list[Json], item: Json, reasoning: str) -> None:
    call = {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    }
    if not messages or messages[-1]["role"] != "assistant" or reasoning:
        messages.append(_with_reasoning({"role": "assistant", "content": None}, reasoning))
    messages[-1].setdefault("tool_calls", []).append(call)


def _content(content: str | Sequence[Json]) -> str | list[Json]:
    """A string if it is text only: every server accepts that."""
    if isinstance(content, str):
        return content
    if all("text" in part or part["type"] == "refusal" for part in content):
        return _joined(content)
    return [_part(part) for part in content]


def _joined(parts: Sequence[Json]) -> str:
    return "".join(part["text"] if "text" in part else part["refusal"] for part in parts)


def _part(part: Json) -> Json:
    match part["type"]:
        case "input_image":
            return {"type": "image_url", "image_url": _image(part)}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case "input_file":
            file: dict[str, Any] = {"file_data": part["file_data"]}
            return {"type": "file", "file": file | ({"filename": part["filename"]} if part.get("filename") else {})}
        case _:
            return {"type": "text", "text": _joined([part])}


def _image(part: Json) -> Json:
    """Some servers refuse the field `detail`, so it is sent only if the client sent it."""
    detail = part.get("detail")
    return {"url": part["image_url"]} | ({"detail": detail} if detail not in (None, "auto") else {})
