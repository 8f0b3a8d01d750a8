"""Chat completions: from a request to a plan (text, JSON or tool calls), and from a plan to OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import (
    AnswerPlan,
    FinishReason,
    Piece,
    PlannedChoice,
    Sampling,
    ToolArguments,
    ToolHead,
    plan_calls,
    plan_fixed,
    plan_text,
    room_after,
    sampling_for,
)
from sparewatt.testing.engine.json_schema import Schema, minimal_value
from sparewatt.testing.engine.replies import (
    DONE,
    EngineUsage,
    ReplyHead,
    TokenLogprob,
    encode,
    envelope,
    sse,
    token_logprob,
    usage_of,
)
from sparewatt.testing.engine.requests import EngineChatRequest, FunctionDefinition
from sparewatt.testing.engine.settings import EngineSettings
from sparewatt.testing.engine.tool_choice import called_functions

_ANY_OBJECT: Schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def plan_chat(request: EngineChatRequest, *, settings: EngineSettings) -> AnswerPlan:
    prompt = text.render_chat(request.messages)
    prompt_tokens = text.count_tokens(prompt)
    room = room_after(prompt_tokens, settings=settings, param="messages")
    limit = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    choices = [
        _plan_choice(
            request,
            prompt=prompt,
            sampling=sampling_for(request, choice=i, room=room, settings=settings, max_tokens=limit),
        )
        for i in range(request.n or 1)
    ]
    return AnswerPlan(prompt_tokens, tuple(choices))


def _plan_choice(request: EngineChatRequest, *, prompt: str, sampling: Sampling) -> PlannedChoice:
    asked, _, already = prompt.rpartition(text.ASSISTANT_MARKER)
    functions = called_functions(request)
    if functions:
        calls = _calls(functions, prompt=prompt, sampling=sampling)
        return plan_calls(calls, index=sampling.choice, sampling=sampling)
    schema = _wanted_schema(request)
    if schema is not None:
        whole = _json(schema, words=text.words(asked, seed=sampling.seed, choice=sampling.choice))
        return plan_fixed(whole, already=already, index=sampling.choice, sampling=sampling)
    return plan_text(prompt, index=sampling.choice, sampling=sampling)


def _wanted_schema(request: EngineChatRequest) -> Schema | None:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return _ANY_OBJECT
    if wanted.json_schema is None:
        raise InvalidField("A response_format of type json_schema needs a json_schema.", param="response_format")
    return wanted.json_schema.schema


def _calls(functions: Sequence[FunctionDefinition], *, prompt: str, sampling: Sampling) -> list[tuple[ToolHead, str]]:
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


class EngineFunctionDelta(Struct, frozen=True):
    arguments: str
    name: str | UnsetType = UNSET


class EngineToolDelta(Struct, frozen=True):
    index: int
    function: EngineFunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class EngineDelta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    tool_calls: list[EngineToolDelta] | UnsetType = UNSET


class EngineChatLogprobs(Struct, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class ChunkChoice(Struct, frozen=True):
    index: int
    delta: EngineDelta
    logprobs: EngineChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class FunctionCall(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    id: str
    function: FunctionCall
    type: str = "function"


class AssistantMessage(Struct, frozen=True):
    content: str | None
    tool_calls: list[ToolCall] | UnsetType
    role: str = "assistant"
    refusal: None = None


class WholeChoice(Struct, frozen=True):
    index: int
    message: AssistantMessage
    logprobs: EngineChatLogprobs | None
    finish_reason: FinishReason


class ChatReply:
    """A `Reply` in the shape of `/v1/chat/completions`."""

    def __init__(self, plan: AnswerPlan, *, head: ReplyHead, request: EngineChatRequest) -> None:
        self.plan = plan
        self._head = head
        self._n_top = request.top_logprobs or 0 if request.logprobs else None
        self._has_usage = bool(request.stream_options and request.stream_options.include_usage)

    def opening(self) -> bytes:
        return b"".join(
            self._chunk(
                ChunkChoice(choice.index, EngineDelta(role="assistant", content=None if _tools(choice) else ""))
            )
            for choice in self.plan.choices
        )

    def step(self, i: int) -> bytes:
        return b"".join(
            self._chunk(ChunkChoice(choice.index, _delta(choice.pieces[i]), self._logprobs(choice, i, i + 1)))
            for choice in self.plan.choices
            if i < len(choice.pieces)
        )

    def closing(self) -> bytes:
        ends = [
            self._chunk(ChunkChoice(choice.index, EngineDelta(), finish_reason=choice.finish_reason))
            for choice in self.plan.choices
        ]
        if self._has_usage:
            ends.append(sse(envelope(self._head, "chat.completion.chunk", (), usage=usage_of(self.plan))))
        return b"".join([*ends, DONE])

    def whole(self) -> bytes:
        choices = [self._whole_choice(choice) for choice in self.plan.choices]
        return encode(envelope(self._head, "chat.completion", choices, usage=usage_of(self.plan)))

    def _chunk(self, choice: ChunkChoice) -> bytes:
        usage: EngineUsage | UnsetType | None = None if self._has_usage else UNSET
        return sse(envelope(self._head, "chat.completion.chunk", (choice,), usage=usage))

    def _whole_choice(self, choice: PlannedChoice) -> WholeChoice:
        calls = _tools(choice)
        message = AssistantMessage(None if calls else choice.text, calls or UNSET)
        return WholeChoice(choice.index, message, self._logprobs(choice, 0, len(choice.pieces)), choice.finish_reason)

    def _logprobs(self, choice: PlannedChoice, start: int, end: int) -> EngineChatLogprobs | None:
        if self._n_top is None:
            return None
        pieces = enumerate(choice.pieces[start:end], start=start)
        return EngineChatLogprobs(
            [token_logprob(piece, step=i, n_top=self._n_top) for i, piece in pieces if isinstance(piece, str)]
        )


def _delta(piece: Piece) -> EngineDelta:
    match piece:
        case str() as content:
            return EngineDelta(content=content)
        case ToolHead(call=call, id=call_id, name=name):
            return EngineDelta(tool_calls=[EngineToolDelta(call, EngineFunctionDelta("", name), call_id, "function")])
        case ToolArguments(call=call, text=arguments):
            return EngineDelta(tool_calls=[EngineToolDelta(call, EngineFunctionDelta(arguments))])


def _tools(choice: PlannedChoice) -> list[ToolCall]:
    """The tool calls that the pieces of a choice add up to."""
    heads = [piece for piece in choice.pieces if isinstance(piece, ToolHead)]
    return [ToolCall(head.id, FunctionCall(head.name, _arguments(choice, head.call))) for head in heads]


def _arguments(choice: PlannedChoice, call: int) -> str:
    return "".join(piece.text for piece in choice.pieces if isinstance(piece, ToolArguments) and piece.call == call)
