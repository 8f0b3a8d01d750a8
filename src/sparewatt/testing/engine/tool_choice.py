"""Which tools a chat leads to: by `tool_choice`, or because the last user message speaks of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine import text
from sparewatt.testing.engine.requests import EngineChatRequest, FunctionDefinition, ToolChoice

_TELLING_WORD_CHARS = 4
"""Words of a tool's name shorter than this (`get`, `to`) say nothing about what the user wants."""

ToolMode = Literal["none", "auto", "required"]


def called_functions(request: EngineChatRequest) -> list[FunctionDefinition]:
    """The functions this chat leads to: by choice, or because the last user message speaks of them."""
    functions = [tool.function for tool in request.tools or () if tool.function is not None]
    mode, names = _tool_mode(request.tool_choice, functions)
    offered = [function for function in functions if function.name in names]
    if mode == "none" or not offered:
        return []
    spoken = _spoken_of(offered, said=_last_user_words(request))
    if not spoken and mode == "required":
        spoken = offered[:1]
    return spoken[:1] if request.parallel_tool_calls is False else spoken


def _tool_mode(
    choice: ToolMode | ToolChoice | None, functions: Sequence[FunctionDefinition]
) -> tuple[ToolMode, set[str]]:
    """The mode, and the names that may be called."""
    every = {function.name for function in functions}
    if not isinstance(choice, ToolChoice):
        return choice or "auto", every
    if choice.allowed_tools is not None:
        return choice.allowed_tools.mode, every & {tool.function.name for tool in choice.allowed_tools.tools}
    if choice.function is None or choice.function.name not in every:
        raise InvalidField("tool_choice names no tool of this request.", param="tool_choice")
    return "required", {choice.function.name}


def _last_user_words(request: EngineChatRequest) -> set[str]:
    last = request.messages[-1]
    return set(re.findall(r"[\w-]+", text.message_text(last).lower())) if last.role == "user" else set()


def _spoken_of(functions: Sequence[FunctionDefinition], *, said: set[str]) -> list[FunctionDefinition]:
    spoken = [function for function in functions if said & _telling_words(function.name.lower())]
    return spoken or (list(functions[:1]) if said & {"tool", "tools"} else [])


def _telling_words(name: str) -> set[str]:
    return {name} | {word for word in re.split(r"[_\W]+", name) if len(word) >= _TELLING_WORD_CHARS}
