"""Tools of a request and its tool choice, as a chat has them.

Only a client's own tools are passed on. Tools that Anthropic runs itself, or whose schema only its own models know, are
left out and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.anthropic.request import Json

NAME_CHARS_MAX = 128
_MODES = {"auto": "auto", "any": "required", "none": "none"}


class OfferedTools(NamedTuple):
    """The fields of a chat that offer the tools, and the names of tools that were left out."""

    fields: Json
    ignored: tuple[str, ...] = ()


def offered_tools(tools: Sequence[Json] | None, choice: Json | None) -> OfferedTools:
    """Raises InvalidField or UnsupportedParameter."""
    functions, ignored = [], []
    for i, tool in enumerate(tools or ()):
        kind = tool.get("type")
        if kind in (None, "custom"):
            functions.append(_function(tool, at=f"tools.{i}"))
        else:
            ignored.append(f"tools.{str(kind)[:40]}")
    fields: Json = {"tools": functions} if functions else {}
    return OfferedTools(fields | _choice(choice, {each["function"]["name"] for each in functions}), tuple(ignored))


def _function(tool: Json, *, at: str) -> Json:
    name, schema, description = tool.get("name"), tool.get("input_schema"), tool.get("description")
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidField(f"A tool has a name of up to {NAME_CHARS_MAX} characters.", param=f"{at}.name")
    if not isinstance(schema, dict):
        raise InvalidField("A tool has an 'input_schema', which is a JSON schema.", param=f"{at}.input_schema")
    function: dict[str, Any] = {"name": name, "parameters": schema}
    if isinstance(description, str):
        function["description"] = description
    if tool.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def _choice(choice: Json | None, known: set[str]) -> Json:
    """Without tools a choice has no effect, as at Anthropic."""
    if choice is None:
        return {}
    fields = {"tool_choice": _mode(choice, known)} if known else {}
    is_single = bool(known) and choice.get("disable_parallel_tool_use") is True
    return fields | ({"parallel_tool_calls": False} if is_single else {})


def _mode(choice: Json, known: set[str]) -> str | Json:
    match choice:
        case {"type": str(kind)} if kind in _MODES:
            return _MODES[kind]
        case {"type": "tool", "name": str(name)} if name in known:
            return {"type": "function", "function": {"name": name}}
        case {"type": "tool"}:
            name = str(choice.get("name"))[:60]
            raise InvalidField(f"tool_choice names {name!r}, which is no tool of the request.", param="tool_choice")
        case _:
            raise UnsupportedParameter("The type of tool_choice is auto, any, tool or none.", param="tool_choice.type")
