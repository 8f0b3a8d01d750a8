"""What an answer will be, decided before its first token: for each choice its pieces and why it ends.

A piece is what one token adds, be it text or a part of a tool call, so a streamed and a whole reply are made of
the same pieces. Nothing here waits or writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparewatt.testing.engine import text
from sparewatt.testing.engine.requests import GenerateRequest
from sparewatt.testing.engine.settings import EngineContextTooLong, EngineSettings

FinishReason = Literal["stop", "length", "tool_calls"]


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
    """Of the prompt, what was read for another request before."""

    @property
    def n_steps(self) -> int:
        """Choices advance side by side: step `i` is token `i` of each."""
        return max((len(choice.pieces) for choice in self.choices), default=0)

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.pieces) for choice in self.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What bounds and varies one answer. `room` is what the context leaves, `length` the natural end (None: none)."""

    seed: int | None = None
    choice: int = 0
    max_tokens: int | None = None
    room: int = 8192
    length: int | None = None
    ignore_eos: bool = False
    stops: tuple[str, ...] = ()

    @property
    def limit(self) -> int:
        return self.room if self.max_tokens is None or self.max_tokens < 0 else min(self.max_tokens, self.room)


def sampling_for(
    request: GenerateRequest, *, choice: int, room: int, settings: EngineSettings, max_tokens: int | None
) -> Sampling:
    return Sampling(
        seed=request.seed,
        choice=choice,
        max_tokens=max_tokens,
        room=room,
        length=settings.answer_tokens,
        ignore_eos=bool(request.ignore_eos),
        stops=_stops(request.stop),
    )


def room_after(prompt_tokens: int, *, settings: EngineSettings, param: str) -> int:
    """What the context leaves for the answer, or the refusal of a prompt that fills it."""
    if prompt_tokens >= settings.n_ctx:
        raise EngineContextTooLong(
            f"The prompt has {prompt_tokens} tokens, but the context of this model holds {settings.n_ctx}.", param=param
        )
    return settings.n_ctx - prompt_tokens


def plan_text(prompt: str, *, index: int, sampling: Sampling) -> PlannedChoice:
    """The answer to `prompt`, from where the prompt already holds a part of it."""
    split = text.continuation(prompt, seed=sampling.seed, choice=sampling.choice)
    n_left = _tokens_left(split, sampling)
    tokens = text.remaining_tokens(split, min(n_left, sampling.limit), seed=sampling.seed, choice=sampling.choice)
    return _ended(tokens, index=index, sampling=sampling, is_cut=n_left > sampling.limit)


def plan_fixed(whole: str, *, already: str, index: int, sampling: Sampling) -> PlannedChoice:
    """A given text such as JSON, without what the prompt already holds of it."""
    rest = whole.removeprefix(already) if whole.startswith(already) else whole
    tokens = text.tokenize(rest)
    return _ended(tokens[: sampling.limit], index=index, sampling=sampling, is_cut=len(tokens) > sampling.limit)


def plan_calls(calls: Sequence[tuple[ToolHead, str]], *, index: int, sampling: Sampling) -> PlannedChoice:
    """Tool calls, each a head and its arguments token by token."""
    pieces: list[Piece] = []
    for head, arguments in calls:
        pieces.append(head)
        pieces.extend(ToolArguments(head.call, token) for token in text.tokenize(arguments))
    is_cut = len(pieces) > sampling.limit
    return PlannedChoice(index, tuple(pieces[: sampling.limit]), "length" if is_cut else "tool_calls")


def _tokens_left(split: text.Continuation, sampling: Sampling) -> int:
    if sampling.ignore_eos:
        return sampling.limit + 1
    natural = text.natural_length(split.base, seed=sampling.seed, choice=sampling.choice)
    return max((natural if sampling.length is None else sampling.length) - split.n_tokens, 0)


def _ended(tokens: list[str], *, index: int, sampling: Sampling, is_cut: bool) -> PlannedChoice:
    kept, has_stopped = cut_at_stop(tokens, sampling.stops)
    return PlannedChoice(index, tuple(kept), "length" if is_cut and not has_stopped else "stop")


def cut_at_stop(tokens: list[str], stops: Sequence[str]) -> tuple[list[str], bool]:
    """The tokens before the earliest stop text, the last of them shortened where the stop begins inside it."""
    whole = "".join(tokens)
    found = [at for at in (whole.find(stop) for stop in stops) if at >= 0]
    if not found:
        return tokens, False
    kept, left = [], min(found)
    for token in tokens:
        if left <= 0:
            break
        kept.append(token[:left])
        left -= len(token)
    return kept, True


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)
