"""Items as the messages of a chat.

What stands at the beginning for the system becomes one message: templates take only one, and only there. Calls go with
the assistant's message before them, and reasoning with the one after it, in the field that model servers use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparewatt.protocol.responses.request import Json

_SYSTEM = ("system", "developer")


def to_messages(items: Sequence[Json], *, instructions: str | None) -> list[Json]:
    """Compactions must have been opened."""
    said = [instructions] if instructions else []
    rest = list(items)
    while rest and _is_system_text(rest[0]):
        said.append(_joined(rest.pop(0)["content"]))
    messages: list[Json] = [{"role": "system", "content": "\n\n".join(said)}] if said else []
    thought = ""
    for item in rest:
        match item["type"]:
            case "message":
                messages.append(_with_thought(_message(item), thought))
                thought = ""
            case "function_call":
                _add_call(messages, item, thought)
                thought = ""
            case "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _content(item["output"])})
            case "reasoning":
                thought += "".join(part["text"] for part in item["content"] or item["summary"])
    return messages


def _is_system_text(item: Json) -> bool:
    is_system = item["type"] == "message" and item["role"] in _SYSTEM
    return is_system and all("text" in part for part in item["content"])


def _message(item: Json) -> Json:
    role = "system" if item["role"] in _SYSTEM else item["role"]
    return {"role": role, "content": _content(item["content"])}


def _with_thought(message: Json, thought: str) -> Json:
    return message | {"reasoning_content": thought} if thought and message["role"] == "assistant" else message


def _add_call(messages: list[Json], item: Json, thought: str) -> None:
    call = {
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    }
    if not messages or messages[-1]["role"] != "assistant" or thought:
        messages.append(_with_thought({"role": "assistant", "content": None}, thought))
    messages[-1].setdefault("tool_calls", []).append(call)


def _content(content: str | Sequence[Json]) -> str | list[Json]:
    """Text where it is only text: every server takes that."""
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
    """Servers that know nothing of detail refuse the word, so it is said only if the client said it."""
    detail = part.get("detail")
    return {"url": part["image_url"]} | ({"detail": detail} if detail not in (None, "auto") else {})
