"""Input items: checked, and normalized into the one shape in which they are stored, listed and translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.responses.request import Json

NewId = Callable[[str], str]
"""Makes an id with the given prefix."""

REFERENCE = "item_reference"
"""The type of an item that stands for one of an earlier response."""
ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
ITEM_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
    "compaction": "cmp",
}


def read_input(given: str | Sequence[Json] | None, *, new_id: NewId) -> list[Json]:
    """The items of a request, each with an id. Raises InvalidField or UnsupportedParameter, naming the path."""
    if given is None:
        return []
    if isinstance(given, str):
        return [_message({"role": "user", "content": given}, at="input", new_id=new_id)]
    return [_item(item, at=f"input[{i}]", new_id=new_id) for i, item in enumerate(given)]


def read_stored_items(given: Sequence[Json], *, at: str, new_id: NewId) -> list[Json]:
    """Items of a conversation: with ids of ours, and none by reference. Raises InvalidField or UnsupportedParameter."""
    unnamed = [{name: value for name, value in item.items() if name != "id"} for item in given]
    return [_item(item, at=f"{at}[{i}]", new_id=new_id) for i, item in enumerate(unnamed)]


def _item(item: Json, *, at: str, new_id: NewId) -> Json:
    kind = item.get("type") or ("message" if "role" in item else REFERENCE if "id" in item else None)
    match kind:
        case "message":
            return _message(item, at=at, new_id=new_id)
        case "function_call":
            return _function_call(item, at=at, new_id=new_id)
        case "function_call_output":
            return _function_output(item, at=at, new_id=new_id)
        case "reasoning":
            return _reasoning(item, at=at, new_id=new_id)
        case "compaction":
            _text(item, "encrypted_content", at=at)
            return _identified(item, "compaction", new_id=new_id)
        case "item_reference":
            return {"id": _text(item, "id", at=at), "type": REFERENCE}
        case _:
            raise UnsupportedParameter(
                f"Items of the type {str(kind)[:40]!r} are not supported here. Types: {', '.join(ITEM_PREFIXES)}, "
                f"{REFERENCE}.",
                param=f"{at}.type",
            )


def reference_ids(items: Sequence[Json]) -> list[str]:
    return [item["id"] for item in items if item["type"] == REFERENCE]


def resolved_items(items: Sequence[Json], found: Mapping[str, Json]) -> list[Json]:
    """The same items, with references replaced by what they stand for."""
    return [found[item["id"]] if item["type"] == REFERENCE else item for item in items]


def refuse_stray_outputs(items: Sequence[Json]) -> None:
    """An output answers a call that stands before it. Raises InvalidField.

    A compaction may have taken the call with it, so nothing is said of a conversation that has one.
    """
    calls: set[str] = set()
    for item in items:
        match item["type"]:
            case "compaction":
                return
            case "function_call":
                calls.add(item["call_id"])
            case "function_call_output" if item["call_id"] not in calls:
                raise InvalidField(
                    f"No tool call found for function call output with call_id {item['call_id'][:80]!r}. "
                    "Send the function_call item before it, or go on from the response that has it.",
                    param="input",
                )


def _message(item: Json, *, at: str, new_id: NewId) -> Json:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise InvalidField(f"The role of a message is one of {', '.join(ROLES)}.", param=f"{at}.role")
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        parts = [_text_part(kind, content)]
    else:
        parts = [_part(part, kind, at=f"{at}.content[{i}]") for i, part in enumerate(_list(item, "content", at=at))]
    return _identified(item, "message", new_id=new_id) | {"content": parts, "status": _status(item)}


def _part(part: Any, kind: str, *, at: str) -> Json:
    if not isinstance(part, dict):
        raise InvalidField("A part of a message is an object with a type.", param=at)
    match part.get("type"):
        case name if name in _TEXT_PARTS:
            return part | _text_part(kind, _text(part, "text", at=at))
        case "refusal":
            _text(part, "refusal", at=at)
            return part
        case "input_image":
            if not isinstance(part.get("image_url"), str):
                raise UnsupportedParameter(
                    "Send an image as 'image_url', a data: URL. Files cannot be uploaded here.",
                    param=f"{at}.image_url",
                )
            return part | {"detail": part.get("detail") or "auto"}
        case "input_audio":
            if not isinstance(part.get("input_audio"), dict):
                raise InvalidField("Send audio as 'input_audio' with data and format.", param=f"{at}.input_audio")
            return part
        case "input_file":
            if not isinstance(part.get("file_data"), str):
                raise UnsupportedParameter(
                    "Send a file as 'file_data', a data URI. Files cannot be uploaded here, and none is fetched.",
                    param=f"{at}.file_data",
                )
            return part
        case other:
            raise UnsupportedParameter(
                f"Parts of the type {str(other)[:40]!r} are not supported here.", param=f"{at}.type"
            )


def _text_part(kind: str, text: str) -> Json:
    return {"type": kind, "text": text} | ({"annotations": []} if kind == "output_text" else {})


def _function_call(item: Json, *, at: str, new_id: NewId) -> Json:
    for name in ("call_id", "name", "arguments"):
        _text(item, name, at=at)
    return _identified(item, "function_call", new_id=new_id) | {"status": _status(item)}


def _function_output(item: Json, *, at: str, new_id: NewId) -> Json:
    _text(item, "call_id", at=at)
    output = item.get("output")
    if not isinstance(output, str):
        parts = _list(item, "output", at=at)
        output = [_part(part, "input_text", at=f"{at}.output[{i}]") for i, part in enumerate(parts)]
    return _identified(item, "function_call_output", new_id=new_id) | {"output": output, "status": _status(item)}


def _reasoning(item: Json, *, at: str, new_id: NewId) -> Json:
    lists: Json = {}
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        parts = item.get(name) or []
        if not isinstance(parts, list):
            raise InvalidField(f"'{name}' is a list of parts.", param=f"{at}.{name}")
        if not all(isinstance(part, dict) for part in parts):
            raise InvalidField("A part is an object.", param=at)
        lists[name] = [{"type": kind, "text": _text(part, "text", at=at)} for part in parts]
    return _identified(item, "reasoning", new_id=new_id) | lists


def _identified(item: Json, kind: str, *, new_id: NewId) -> Json:
    given = item.get("id")
    item_id = given if isinstance(given, str) and 1 <= len(given) <= 200 else new_id(ITEM_PREFIXES[kind])
    return item | {"id": item_id, "type": kind}


def _status(item: Json) -> str:
    return item["status"] if item.get("status") in ("in_progress", "completed", "incomplete") else "completed"


def _text(item: Json, name: str, *, at: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidField(f"'{name}' is required here, and is text.", param=f"{at}.{name}")
    return value


def _list(item: Json, name: str, *, at: str) -> list[Any]:
    value = item.get(name)
    if not isinstance(value, list):
        raise InvalidField(f"'{name}' is text or a list of parts.", param=f"{at}.{name}")
    return value
