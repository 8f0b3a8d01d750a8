"""Bodies and server-sent events in OpenAI's shapes: chat and text completions, and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, assert_never
from zlib import crc32

import msgspec

from sparewatt.core.errors import SparewattError
from sparewatt.testing.engine.answer_plan import AnswerPlan, Piece, PlannedChoice, ToolArguments, ToolHead
from sparewatt.testing.engine.requests import EngineChatRequest, EngineCompletionRequest, GenerateRequest
from sparewatt.testing.engine.text import VOCABULARY

FINGERPRINT = "fp_deterministic"
DONE = b"data: [DONE]\n\n"

Json = dict[str, object]

encode = msgspec.json.Encoder().encode


def sse(value: object) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def error_body(error: SparewattError) -> Json:
    return error_object(error.message, error.kind, param=error.param, code=error.code)


def error_object(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class ReplyHead(NamedTuple):
    """What all chunks of one reply repeat."""

    id: str
    created: int
    model: str


class EngineReply(ABC):
    """A planned answer as one endpoint's body, or as events before, during and after the tokens."""

    body_kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, plan: AnswerPlan, *, head: ReplyHead, request: GenerateRequest, n_top: int | None) -> None:
        """`n_top`: alternatives to list for each token; None: no logprobs at all."""
        self.plan = plan
        self._head = head
        self._n_top = n_top
        self._has_usage = bool(request.stream_options and request.stream_options.include_usage)

    def opening(self) -> bytes:
        return b"".join(self._chunk(first) for choice in self.plan.choices if (first := self._first(choice)))

    def step(self, i: int) -> bytes:
        """Token `i` of every choice that has one."""
        return b"".join(self._chunk(self._token(choice, i)) for choice in self.plan.choices if i < len(choice.pieces))

    def closing(self) -> bytes:
        """Up to `[DONE]`."""
        ends = [self._chunk(self._last(choice)) for choice in self.plan.choices]
        if self._has_usage:
            ends.append(sse(self._envelope(self.chunk_kind, ()) | {"usage": self._usage()}))
        return b"".join([*ends, DONE])

    def whole(self) -> Json:
        """The body of a reply that is not streamed."""
        choices = [self._whole(choice) for choice in self.plan.choices]
        return self._envelope(self.body_kind, choices) | {"usage": self._usage()}

    @abstractmethod
    def _first(self, choice: PlannedChoice) -> Json | None:
        """What comes before the tokens of a choice."""

    @abstractmethod
    def _token(self, choice: PlannedChoice, i: int) -> Json: ...

    @abstractmethod
    def _last(self, choice: PlannedChoice) -> Json: ...

    @abstractmethod
    def _whole(self, choice: PlannedChoice) -> Json: ...

    def _chunk(self, choice: Json) -> bytes:
        """With a usage that is null, if the client wants one in the last chunk."""
        chunk = self._envelope(self.chunk_kind, (choice,))
        if self._has_usage:
            chunk["usage"] = None
        return sse(chunk)

    def _envelope(self, kind: str, choices: Sequence[Json]) -> Json:
        return {
            "id": self._head.id,
            "object": kind,
            "created": self._head.created,
            "model": self._head.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }

    def _usage(self) -> Json:
        n_in, n_out = self.plan.prompt_tokens, self.plan.completion_tokens
        return {
            "prompt_tokens": n_in,
            "completion_tokens": n_out,
            "total_tokens": n_in + n_out,
            "prompt_tokens_details": {"cached_tokens": self.plan.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }


class ChatReply(EngineReply):
    """`/v1/chat/completions`."""

    body_kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, plan: AnswerPlan, *, head: ReplyHead, request: EngineChatRequest) -> None:
        super().__init__(
            plan, head=head, request=request, n_top=request.top_logprobs or 0 if request.logprobs else None
        )

    def _first(self, choice: PlannedChoice) -> Json:
        return _chunk_choice(choice, {"role": "assistant", "content": None if _tool_calls(choice) else ""})

    def _token(self, choice: PlannedChoice, i: int) -> Json:
        return _chunk_choice(choice, _delta(choice.pieces[i]), logprobs=self._logprobs(choice, i, i + 1))

    def _last(self, choice: PlannedChoice) -> Json:
        return _chunk_choice(choice, {}, finish_reason=choice.finish_reason)

    def _whole(self, choice: PlannedChoice) -> Json:
        calls = _tool_calls(choice)
        message = {"content": None, "tool_calls": calls} if calls else {"content": choice.text}
        return {
            "index": choice.index,
            "message": message | {"role": "assistant", "refusal": None},
            "logprobs": self._logprobs(choice, 0, len(choice.pieces)),
            "finish_reason": choice.finish_reason,
        }

    def _logprobs(self, choice: PlannedChoice, start: int, end: int) -> Json | None:
        if self._n_top is None:
            return None
        pieces = enumerate(choice.pieces[start:end], start=start)
        content = [_token_logprob(piece, step=i, n_top=self._n_top) for i, piece in pieces if isinstance(piece, str)]
        return {"content": content, "refusal": None}


def _chunk_choice(
    choice: PlannedChoice, delta: Json, *, logprobs: Json | None = None, finish_reason: str | None = None
) -> Json:
    return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _delta(piece: Piece) -> Json:
    match piece:
        case str() as content:
            return {"content": content}
        case ToolHead(call=call, id=call_id, name=name):
            function = {"arguments": "", "name": name}
            return {"tool_calls": [{"index": call, "function": function, "id": call_id, "type": "function"}]}
        case ToolArguments(call=call, text=arguments):
            return {"tool_calls": [{"index": call, "function": {"arguments": arguments}}]}
        case _:
            assert_never(piece)


def _tool_calls(choice: PlannedChoice) -> list[Json]:
    arguments = {piece.call: "" for piece in choice.pieces if isinstance(piece, ToolHead)}
    for piece in choice.pieces:
        if isinstance(piece, ToolArguments):
            arguments[piece.call] += piece.text
    return [
        {"id": head.id, "function": {"name": head.name, "arguments": arguments[head.call]}, "type": "function"}
        for head in choice.pieces
        if isinstance(head, ToolHead)
    ]


class CompletionReply(EngineReply):
    """`/v1/completions`."""

    body_kind = chunk_kind = "text_completion"

    def __init__(self, plan: AnswerPlan, *, head: ReplyHead, request: EngineCompletionRequest) -> None:
        super().__init__(plan, head=head, request=request, n_top=request.logprobs)

    def _first(self, choice: PlannedChoice) -> Json | None:
        return _text_choice(choice, choice.echo) if choice.echo else None

    def _token(self, choice: PlannedChoice, i: int) -> Json:
        return _text_choice(choice, str(choice.pieces[i]), logprobs=self._logprobs(choice, i, i + 1))

    def _last(self, choice: PlannedChoice) -> Json:
        return _text_choice(choice, "", finish_reason=choice.finish_reason)

    def _whole(self, choice: PlannedChoice) -> Json:
        logprobs = self._logprobs(choice, 0, len(choice.pieces))
        return _text_choice(choice, choice.text, logprobs=logprobs, finish_reason=choice.finish_reason)

    def _logprobs(self, choice: PlannedChoice, start: int, end: int) -> Json | None:
        if self._n_top is None:
            return None
        tokens = [str(piece) for piece in choice.pieces[:end]]
        return {
            "tokens": tokens[start:],
            "token_logprobs": [_score(tokens[i], i) for i in range(start, end)],
            "top_logprobs": [dict(_ranked(tokens[i], step=i, n_top=self._n_top)) for i in range(start, end)],
            "text_offset": [len(choice.echo) + sum(map(len, tokens[:i])) for i in range(start, end)],
        }


def _text_choice(
    choice: PlannedChoice, text: str, *, logprobs: Json | None = None, finish_reason: str | None = None
) -> Json:
    return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


def _token_logprob(token: str, *, step: int, n_top: int) -> Json:
    top = _ranked(token, step=step, n_top=n_top)
    return {
        "token": token,
        "logprob": _score(token, step),
        "bytes": list(token.encode()),
        "top_logprobs": [{"token": one, "logprob": score, "bytes": list(one.encode())} for one, score in top],
    }


def _score(token: str, step: int) -> float:
    return -(crc32(f"{step}{token}".encode()) % 1000) / 1000


def _ranked(token: str, *, step: int, n_top: int) -> list[tuple[str, float]]:
    """`n_top` tokens with repeatable scores; the chosen one is always the most likely."""
    others = [VOCABULARY[(step + k) % len(VOCABULARY)] for k in range(n_top)]
    ranked = [token, *(other for other in others if other != token)][:n_top]
    return [(one, _score(token, step) - rank) for rank, one in enumerate(ranked)]
