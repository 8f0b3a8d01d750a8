"""Plans a chat's answer: tool calls, JSON of the wanted schema, or text.

Tools are called by `tool_choice`, or because words of their names are in the last user message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import (
    AnswerPlan,
    PlannedChoice,
    Sampling,
    ToolHead,
    plan_calls,
    plan_fixed,
    plan_text,
    room_after,
    sampling_for,
)
from sparewatt.testing.engine.json_schema import Schema, minimal_value
from sparewatt.testing.engine.requests import EngineChatRequest, FunctionDefinition, ToolChoice
from sparewatt.testing.engine.settings import EngineSettings

ToolMode = Literal["none", "auto", "required"]

_ANY_OBJECT: Schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
_KEYWORD_CHARS_MIN = 4
"""Shorter words of a tool's name (`get`, `to`) do not show that the user means the tool."""


def plan_chat(request: EngineChatRequest, *, settings: EngineSettings) -> AnswerPlan:
    prompt = text.render_chat(request.messages)
    prompt_tokens = text.count_tokens(prompt)
    limit = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    room = room_after(prompt_tokens, settings=settings, param="messages", max_tokens=limit)
    samplings = [
        sampling_for(request, index=i, choice=i, room=room, settings=settings, max_tokens=limit)
        for i in range(request.n or 1)
    ]
    return AnswerPlan(prompt_tokens, tuple(_plan_choice(request, prompt, sampling) for sampling in samplings))


def _plan_choice(request: EngineChatRequest, prompt: str, sampling: Sampling) -> PlannedChoice:
    functions = called_functions(request)
    if functions:
        return plan_calls(_calls(functions, prompt, sampling), sampling)
    schema = _wanted_schema(request)
    if schema is None:
        return plan_text(prompt, sampling)
    before, _, emitted = prompt.rpartition(text.ASSISTANT_MARKER)
    whole = _json(schema, words=text.words(before, seed=sampling.seed, choice=sampling.choice))
    return plan_fixed(whole, sampling, emitted=emitted)


def _wanted_schema(request: EngineChatRequest) -> Schema | None:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _ANY_OBJECT
    if wanted.json_schema is None:
        raise InvalidField("A response_format of type json_schema needs a json_schema.", param="response_format")
    return wanted.json_schema.schema


def _calls(functions: Sequence[FunctionDefinition], prompt: str, sampling: Sampling) -> list[tuple[ToolHead, str]]:
    words = text.words(prompt, seed=sampling.seed, choice=sampling.choice)
    salt = f"{prompt}\0{sampling.seed}\0{sampling.choice}"
    return [
        (ToolHead(i, _call_id(salt, i), function.name), _json(function.parameters or {"type": "object"}, words=words))
        for i, function in enumerate(functions)
    ]


def _call_id(salt: str, i: int) -> str:
    return f"call_{sha256(f'{salt}{i}'.encode()).hexdigest()[:24]}"


def _json(schema: Schema, *, words: Iterator[str]) -> str:
    return msgspec.json.encode(minimal_value(schema, words=words)).decode()


# which tools are called


def called_functions(request: EngineChatRequest) -> list[FunctionDefinition]:
    functions = [tool.function for tool in request.tools or () if tool.function is not None]
    mode, names = _tool_mode(request.tool_choice, functions)
    offered = [function for function in functions if function.name in names]
    if mode == "none" or not offered:
        return []
    called = _mentioned(offered, words=_last_user_words(request))
    if not called and mode == "required":
        called = offered[:1]
    return called[:1] if request.parallel_tool_calls is False else called


def _tool_mode(
    choice: ToolMode | ToolChoice | None, functions: Sequence[FunctionDefinition]
) -> tuple[ToolMode, set[str]]:
    """The mode, and the names that may be called."""
    names = {function.name for function in functions}
    if not isinstance(choice, ToolChoice):
        return choice or "auto", names
    if choice.allowed_tools is not None:
        return choice.allowed_tools.mode, names & {tool.function.name for tool in choice.allowed_tools.tools}
    if choice.function is None or choice.function.name not in names:
        raise InvalidField("tool_choice names no tool of this request.", param="tool_choice")
    return "required", {choice.function.name}


def _last_user_words(request: EngineChatRequest) -> set[str]:
    last = request.messages[-1]
    return set(re.findall(r"[\w-]+", text.message_text(last).lower())) if last.role == "user" else set()


def _mentioned(functions: Sequence[FunctionDefinition], *, words: set[str]) -> list[FunctionDefinition]:
    mentioned = [function for function in functions if words & _keywords(function.name.lower())]
    return mentioned or (list(functions[:1]) if words & {"tool", "tools"} else [])


def _keywords(name: str) -> set[str]:
    return {name} | {word for word in re.split(r"[_\W]+", name) if len(word) >= _KEYWORD_CHARS_MIN}
