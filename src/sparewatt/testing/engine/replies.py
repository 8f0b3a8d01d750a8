"""What goes out over HTTP, as msgspec structs: chat and text completions, whole and in chunks, and errors.

`EngineReply` is what the generator needs from either kind: the bytes before, during and after the tokens, and all at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from zlib import crc32

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sparewatt.core.errors import SparewattError
from sparewatt.testing.engine.answer_plan import AnswerPlan
from sparewatt.testing.engine.text import VOCABULARY

FINGERPRINT = "fp_deterministic"
DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


class EngineReply(Protocol):
    """A planned answer in the shape of one endpoint."""

    plan: AnswerPlan

    def opening(self) -> bytes:
        """The events before the first token."""
        ...

    def step(self, i: int) -> bytes:
        """The events of token `i` of every choice that has one."""
        ...

    def closing(self) -> bytes:
        """The events after the last token, up to `[DONE]`."""
        ...

    def whole(self) -> bytes:
        """The body of a reply that is not streamed."""
        ...


class ErrorDetail(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct, frozen=True):
    error: ErrorDetail


class PromptDetails(Struct, frozen=True):
    cached_tokens: int = 0


class CompletionDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class EngineUsage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ReplyHead(Struct, frozen=True, kw_only=True):
    """What all chunks and bodies of one reply repeat."""

    id: str
    created: int
    model: str


class Envelope(Struct, frozen=True, kw_only=True):
    """A body or a chunk. `usage` is absent, null or there, as the client asked."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str = FINGERPRINT
    choices: Sequence[Struct]
    usage: EngineUsage | UnsetType | None = UNSET


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def sse(value: Any) -> bytes:
    return b"data: " + _encoder.encode(value) + b"\n\n"


def envelope(
    head: ReplyHead, kind: str, choices: Sequence[Struct], *, usage: EngineUsage | UnsetType | None = UNSET
) -> Envelope:
    return Envelope(id=head.id, object=kind, created=head.created, model=head.model, choices=choices, usage=usage)


def usage_of(plan: AnswerPlan) -> EngineUsage:
    n_out = plan.completion_tokens
    return EngineUsage(plan.prompt_tokens, n_out, plan.prompt_tokens + n_out, PromptDetails(plan.cached_tokens))


def error_body(error: SparewattError) -> ErrorBody:
    return ErrorBody(ErrorDetail(error.message, error.kind, error.param, error.code))


def token_logprob(token: str, *, step: int, n_top: int) -> TokenLogprob:
    """A repeatable score; the chosen token is always the likeliest of its `n_top`."""
    score = -(crc32(f"{step}{token}".encode()) % 1000) / 1000
    others = [VOCABULARY[(step + k) % len(VOCABULARY)] for k in range(n_top)]
    ranked = [token, *(other for other in others if other != token)][:n_top]
    top = [TopLogprob(each, score - rank, list(each.encode())) for rank, each in enumerate(ranked)]
    return TokenLogprob(token, score, list(token.encode()), top)
