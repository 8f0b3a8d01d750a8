"""Tools and what may be chosen of them. Only functions can be called here: nobody would run the hosted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparewatt.core.errors import InvalidField, UnsupportedParameter
from sparewatt.protocol.responses.request import Json

_MODES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """Functions as the client wrote them, what it chose, and the names of tools that were left out."""

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
            _must_know([name], known)
            return {"type": "function", "name": name}
        case {"type": "allowed_tools", "tools": list(allowed), **rest}:
            names = [tool.get("name") for tool in allowed if isinstance(tool, dict) and tool.get("type") == "function"]
            _must_know(names, known)
            mode = rest.get("mode") or "auto"
            if mode not in _MODES:
                raise InvalidField("The mode of allowed tools is auto or required.", param="tool_choice.mode")
            return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": n} for n in names]}
        case _:
            raise UnsupportedParameter(
                "tool_choice is auto, none, required, a function by name, or a list of allowed functions.",
                param="tool_choice",
            )


def _must_know(names: Sequence[Any], known: set[str]) -> None:
    missing = [str(name)[:60] for name in names if name not in known]
    if missing or not names:
        raise InvalidField(
            f"tool_choice names {', '.join(missing) or 'nothing'}, which is no function of 'tools'.",
            param="tool_choice",
        )


def chat_tools(tools: ToolSelection) -> Json:
    """The fields of a chat request that say the same. Only what the client said is said to the server."""
    if not tools.functions:
        return {}
    functions, choice = tools.functions, tools.choice
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        # A chat's own word for it is known to few servers; offering only these tools comes to the same.
        names = {tool["name"] for tool in choice["tools"]}
        functions, choice = tuple(f for f in functions if f["name"] in names), choice["mode"]
    elif isinstance(choice, dict):
        choice = {"type": "function", "function": {"name": choice["name"]}}
    said = {"tools": [{"type": "function", "function": _chat_function(f)} for f in functions]}
    return said | ({"tool_choice": choice} if choice != "auto" else {})


def _chat_function(function: Json) -> Json:
    return {
        name: function[name] for name in ("name", "description", "parameters", "strict") if function[name] is not None
    }
