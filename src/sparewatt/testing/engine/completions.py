"""Raw text completions: from a request to a plan, and from a plan to OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from sparewatt.core.errors import InvalidField
from sparewatt.testing.engine import text
from sparewatt.testing.engine.answer_plan import (
    AnswerPlan,
    FinishReason,
    PlannedChoice,
    plan_text,
    room_after,
    sampling_for,
)
from sparewatt.testing.engine.replies import (
    DONE,
    EngineUsage,
    ReplyHead,
    encode,
    envelope,
    sse,
    token_logprob,
    usage_of,
)
from sparewatt.testing.engine.requests import EngineCompletionRequest
from sparewatt.testing.engine.settings import EngineSettings

INPUTS_MAX = 2048
"""Prompts or texts in one request: OpenAI's own bound."""


def texts_of(given: str | Sequence[str | int | Sequence[int]], *, param: str) -> list[str]:
    """One text per input; token ids become a text with as many tokens."""
    if isinstance(given, str):
        return [given]
    if not given or (len(given) > INPUTS_MAX and not isinstance(given[0], int)):
        raise InvalidField(f"{param} must have between 1 and {INPUTS_MAX} entries.", param=param)
    ids = [each for each in given if isinstance(each, int)]
    if len(ids) == len(given):
        return [_text_of_ids(ids)]
    if ids:
        raise InvalidField(f"{param} must not mix token ids with texts.", param=param)
    return [each if isinstance(each, str) else _text_of_ids(each) for each in given if not isinstance(each, int)]


def _text_of_ids(ids: Sequence[int]) -> str:
    return "".join(f" t{abs(token_id)}" for token_id in ids)


def plan_completion(request: EngineCompletionRequest, *, settings: EngineSettings) -> AnswerPlan:
    prompts = texts_of(request.prompt, param="prompt")
    counts = [text.count_tokens(prompt) for prompt in prompts]
    n_each = request.n or 1
    choices = [
        _plan_choice(
            request, prompt, room=room_after(count, settings=settings, param="prompt"), settings=settings, at=at
        )
        for i, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
        for at in ((i * n_each + choice, choice) for choice in range(n_each))
    ]
    return AnswerPlan(sum(counts), tuple(choices))


def _plan_choice(
    request: EngineCompletionRequest, prompt: str, *, room: int, settings: EngineSettings, at: tuple[int, int]
) -> PlannedChoice:
    index, number = at
    sampling = sampling_for(request, choice=number, room=room, settings=settings, max_tokens=request.max_tokens)
    choice = plan_text(prompt, index=index, sampling=sampling)
    return PlannedChoice(index, choice.pieces, choice.finish_reason, echo=prompt) if request.echo else choice


class EngineTextLogprobs(Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Struct, frozen=True):
    index: int
    text: str
    logprobs: EngineTextLogprobs | None = None
    finish_reason: FinishReason | None = None


class CompletionReply:
    """A `Reply` in the shape of `/v1/completions`."""

    def __init__(self, plan: AnswerPlan, *, head: ReplyHead, request: EngineCompletionRequest) -> None:
        self.plan = plan
        self._head = head
        self._n_top = request.logprobs
        self._has_usage = bool(request.stream_options and request.stream_options.include_usage)

    def opening(self) -> bytes:
        echoes = (TextChoice(choice.index, choice.echo) for choice in self.plan.choices if choice.echo)
        return b"".join(self._chunk(echo) for echo in echoes)

    def step(self, i: int) -> bytes:
        return b"".join(
            self._chunk(TextChoice(choice.index, str(choice.pieces[i]), self._logprobs(choice, i, i + 1)))
            for choice in self.plan.choices
            if i < len(choice.pieces)
        )

    def closing(self) -> bytes:
        ends = [
            self._chunk(TextChoice(choice.index, "", finish_reason=choice.finish_reason))
            for choice in self.plan.choices
        ]
        if self._has_usage:
            ends.append(sse(envelope(self._head, "text_completion", (), usage=usage_of(self.plan))))
        return b"".join([*ends, DONE])

    def whole(self) -> bytes:
        choices = [
            TextChoice(choice.index, choice.text, self._logprobs(choice, 0, len(choice.pieces)), choice.finish_reason)
            for choice in self.plan.choices
        ]
        return encode(envelope(self._head, "text_completion", choices, usage=usage_of(self.plan)))

    def _chunk(self, choice: TextChoice) -> bytes:
        usage: EngineUsage | UnsetType | None = None if self._has_usage else UNSET
        return sse(envelope(self._head, "text_completion", (choice,), usage=usage))

    def _logprobs(self, choice: PlannedChoice, start: int, end: int) -> EngineTextLogprobs | None:
        if self._n_top is None:
            return None
        tokens = [str(piece) for piece in choice.pieces[:end]]
        scored = [token_logprob(tokens[i], step=i, n_top=self._n_top) for i in range(start, end)]
        return EngineTextLogprobs(
            [each.token for each in scored],
            [each.logprob for each in scored],
            [{top.token: top.logprob for top in each.top_logprobs} for each in scored],
            [len(choice.echo) + sum(map(len, tokens[:i])) for i in range(start, end)],
        )
