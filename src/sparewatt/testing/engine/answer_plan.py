"""Plans an answer before its first token: for each choice its pieces and its finish reason.

A piece is what one token adds, text or a part of a tool call, so a streamed and a whole reply consist of the same
pieces. Planning neither waits nor does I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine import text
from sparewatt.testing.engine.requests import EngineCompletionRequest, GenerateRequest
from sparewatt.testing.engine.settings import EngineContextTooLong, EngineSettings

FinishReason = Literal["stop", "length", "tool_calls"]

INPUTS_MAX = 2048
"""Prompts or texts in one request: OpenAI's own bound."""


@dataclass(frozen=True, slots=True)
class ToolHead:
    """Opens the tool call number `call`."""

    call: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A part of the JSON arguments of tool call number `call`."""

    call: int
    text: str


Piece = str | ToolHead | ToolArguments


@dataclass(frozen=True, slots=True)
class PlannedChoice:
    index: int
    pieces: tuple[Piece, ...]
    finish_reason: FinishReason
    echo: str = ""

    @property
    def text(self) -> str:
        return self.echo + "".join(piece for piece in self.pieces if isinstance(piece, str))


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    prompt_tokens: int
    choices: tuple[PlannedChoice, ...]
    cached_tokens: int = 0
    """Of the prompt, what is in the prefix cache."""

    @property
    def n_steps(self) -> int:
        """Choices advance together: step `i` is token `i` of each."""
        return max((len(choice.pieces) for choice in self.choices), default=0)

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.pieces) for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What varies and bounds one choice."""

    index: int
    """Among all choices of the reply."""
    choice: int
    """Among those of the same prompt."""
    seed: int | None
    limit: int
    length: int | None
    """Tokens until the natural end; None: by the prompt."""
    ignore_eos: bool
    stops: tuple[str, ...]


def sampling_for(
    request: GenerateRequest,
    *,
    index: int,
    choice: int,
    room: int,
    settings: EngineSettings,
    max_tokens: int | None,
) -> Sampling:
    """`room` is what the context leaves for the answer."""
    stop = request.stop or ()
    return Sampling(
        index=index,
        choice=choice,
        seed=request.seed if not settings.weights else (request.seed or 0) + settings.weights,
        limit=room if max_tokens is None or max_tokens < 0 else min(max_tokens, room),
        length=settings.answer_tokens,
        ignore_eos=bool(request.ignore_eos),
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
    )


def room_after(prompt_tokens: int, *, settings: EngineSettings, param: str, max_tokens: int | None = None) -> int:
    """What the context leaves for the answer. Raises EngineContextTooLong if that is nothing.

    vLLM and SGLang also refuse a prompt that fits, if it does not together with `max_tokens`.
    """
    wanted = max(0, max_tokens or 0) if settings.speaks in ("vllm", "sglang") else 0
    if prompt_tokens >= settings.n_ctx or prompt_tokens + wanted > settings.n_ctx:
        raise EngineContextTooLong(prompt_tokens=prompt_tokens, n_ctx=settings.n_ctx, max_tokens=wanted, param=param)
    return settings.n_ctx - prompt_tokens


def plan_completion(request: EngineCompletionRequest, *, settings: EngineSettings) -> AnswerPlan:
    prompts = texts_of(request.prompt, param="prompt")
    choices: list[PlannedChoice] = []
    total = 0
    for prompt in prompts:
        count = text.count_tokens(prompt)
        total += count
        room = room_after(count, settings=settings, param="prompt", max_tokens=request.max_tokens)
        for number in range(request.n or 1):
            limit, index = request.max_tokens, len(choices)
            sampling = sampling_for(request, index=index, choice=number, room=room, settings=settings, max_tokens=limit)
            choices.append(replace(plan_text(prompt, sampling), echo=prompt if request.echo else ""))
    return AnswerPlan(total, tuple(choices))


def texts_of(given: str | Sequence[str | int | Sequence[int]], *, param: str) -> list[str]:
    """One text per input; token ids become a text with as many tokens."""
    if isinstance(given, str):
        return [given]
    if not given or (len(given) > INPUTS_MAX and not isinstance(given[0], int)):
        raise InvalidField(f"{param} must have between 1 and {INPUTS_MAX} entries.", param=param)
    ids = [entry for entry in given if isinstance(entry, int)]
    if len(ids) == len(given):
        return [_text_of_ids(ids)]
    if ids:
        raise InvalidField(f"{param} must not mix token ids with texts.", param=param)
    return [entry if isinstance(entry, str) else _text_of_ids(entry) for entry in given if not isinstance(entry, int)]


def _text_of_ids(ids: Sequence[int]) -> str:
    return "".join(f" t{abs(token_id)}" for token_id in ids)


def plan_text(prompt: str, sampling: Sampling) -> PlannedChoice:
    """The answer to `prompt`, or the rest of it if the prompt already ends with a part."""
    seed, choice, limit = sampling.seed, sampling.choice, sampling.limit
    split = text.continuation(prompt, seed=seed, choice=choice)
    if sampling.ignore_eos:
        n_left = limit + 1
    else:
        natural = text.natural_length(split.base, seed=seed, choice=choice)
        n_left = max((natural if sampling.length is None else sampling.length) - split.n_tokens, 0)
    tokens = text.remaining_tokens(split, min(n_left, limit), seed=seed, choice=choice)
    return _text_choice(tokens, sampling, is_cut=n_left > limit)


def plan_fixed(whole: str, sampling: Sampling, *, emitted: str) -> PlannedChoice:
    """A given text such as JSON, without the part that the prompt already has."""
    tokens = text.tokenize(whole.removeprefix(emitted))
    return _text_choice(tokens[: sampling.limit], sampling, is_cut=len(tokens) > sampling.limit)


def plan_calls(calls: Sequence[tuple[ToolHead, str]], sampling: Sampling) -> PlannedChoice:
    """Tool calls, each a head and its arguments token by token."""
    pieces: list[Piece] = []
    for head, arguments in calls:
        pieces.append(head)
        pieces.extend(ToolArguments(head.call, token) for token in text.tokenize(arguments))
    is_cut = len(pieces) > sampling.limit
    return PlannedChoice(sampling.index, tuple(pieces[: sampling.limit]), "length" if is_cut else "tool_calls")


def _text_choice(tokens: list[str], sampling: Sampling, *, is_cut: bool) -> PlannedChoice:
    """Ends before the earliest stop text; a stop inside a token shortens that token."""
    whole = "".join(tokens)
    left = min((at for stop in sampling.stops if (at := whole.find(stop)) >= 0), default=None)
    if left is None:
        return PlannedChoice(sampling.index, tuple(tokens), "length" if is_cut else "stop")
    pieces: list[str] = []
    for token in tokens:
        if left <= 0:
            break
        pieces.append(token[:left])
        left -= len(token)
    return PlannedChoice(sampling.index, tuple(pieces), "stop")
