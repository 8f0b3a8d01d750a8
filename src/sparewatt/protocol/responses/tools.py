"""Tools of a request and its tool choice. Only functions are supported: a network has no hosted tools to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.responses.request import Json

_MODES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """The functions of a request in full, its tool choice, and the names of tools that were dropped."""

    functions: tuple[Json, ...] = ()
    choice: str | Json = "auto"
    ignored: tuple[str, ...] = ()


NO_TOOLS = ToolSelection()


def read_tools(tools: Sequence[Json] | None, choice: str | Json | None) -> ToolSelection:
    """Raises InvalidField or UnsupportedParameter."""
    functions, ignored = [], []
    for i, tool in enumerate(tools or ()):
        if tool.get("type") == "function":
            functions.append(_function(tool, at=f"tools[{i}]"))
        else:
            ignored.append(f"tools.{str(tool.get('type'))[:40]}")
    return ToolSelection(tuple(functions), _choice(choice, {f["name"] for f in functions}), tuple(ignored))


def _function(tool: Json, *, at: str) -> Json:
    name, parameters = tool.get("name"), tool.get("parameters")
    if not isinstance(name, str) or not 1 <= len(name) <= 128:
        raise InvalidField("A function has a name of up to 128 characters.", param=f"{at}.name")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidField("The parameters of a function are a JSON schema.", param=f"{at}.parameters")
    return {
        "type": "function",
        "name": name,
        "description": tool.get("description") if isinstance(tool.get("description"), str) else None,
        "parameters": parameters,
        "strict": bool(tool["strict"]) if tool.get("strict") is not None else None,
    }


def _choice(choice: str | Json | None, known: set[str]) -> str | Json:
    match choice:
        case None:
            return "auto"
        case str() if choice in _MODES:
            return choice
        case {"type": "function", "name": str(name)}:
            _require_known([name], known)
            return {"type": "function", "name": name}
        case {"type": "allowed_tools", "tools": list(allowed), **rest}:
            names = [tool.get("name") for tool in allowed if isinstance(tool, dict) and tool.get("type") == "function"]
            _require_known(names, known)
            mode = rest.get("mode") or "auto"
            if mode not in _MODES:
                raise InvalidField("The mode of allowed tools is auto or required.", param="tool_choice.mode")
            return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": n} for n in names]}
        case _:
            raise UnsupportedParameter(
                "tool_choice is auto, none, required, a function by name, or a list of allowed functions.",
                param="tool_choice",
            )


def _require_known(names: Sequence[Any], known: set[str]) -> None:
    missing = [str(name)[:60] for name in names if name not in known]
    if missing or not names:
        raise InvalidField(
            f"tool_choice names {', '.join(missing) or 'nothing'}, which is no function of 'tools'.",
            param="tool_choice",
        )


def chat_tools(tools: ToolSelection) -> Json:
    """The same as fields of a chat request, without defaults: some servers do not know all fields."""
    if not tools.functions:
        return {}
    functions, choice = tools.functions, tools.choice
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        # Few servers know the chat field for allowed tools. To offer only these has the same effect.
        names = {tool["name"] for tool in choice["tools"]}
        functions, choice = tuple(f for f in functions if f["name"] in names), choice["mode"]
    elif isinstance(choice, dict):
        choice = {"type": "function", "function": {"name": choice["name"]}}
    tool_choice = {"tool_choice": choice} if choice != "auto" else {}
    return {"tools": [{"type": "function", "function": _chat_function(f)} for f in functions]} | tool_choice


def _chat_function(function: Json) -> Json:
    return {name: value for name, value in function.items() if name != "type" and value is not None}
