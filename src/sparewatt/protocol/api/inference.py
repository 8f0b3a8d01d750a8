"""`/v1/chat/completions`, `/v1/completions` and `/v1/embeddings`, in OpenAI's shapes.

A node's model server writes these replies and the gateway passes them on, so there may be more fields than are named
here. A field that some model servers leave out has a default.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object. Model servers that write one into a stream leave out some of its fields."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    """Absent for embeddings."""
    total_tokens: int = 0
    cost: float | None = None
    """In dollars. Absent on a network without billing."""


class ChatCompletionMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: str = "assistant"
    content: str | None = None
    """None if the model only calls tools."""
    reasoning_content: str | None = None
    """The reasoning of a reasoning model; some model servers call it `reasoning`."""
    tool_calls: list[dict[str, Any]] | None = None


class ChatCompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: ChatCompletionMessage
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls` or `content_filter`."""


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    """Unix seconds."""
    model: str
    choices: list[ChatCompletionChoice]
    usage: TokenUsage | None = None


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a choice's message that a chunk adds."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: ChatDelta = msgspec.field(default_factory=ChatDelta)
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None
    """In the last chunk of the choice."""


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed chat: some text, the usage at the end, or an error in place of the rest."""

    id: str = ""
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = ""
    choices: list[ChatChunkChoice] = []
    usage: TokenUsage | None = None
    error: ErrorObject | None = None


class TextCompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    text: str
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Whole, or one event of a stream: both have the same shape."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    """Unix seconds."""
    model: str
    choices: list[TextCompletionChoice]
    usage: TokenUsage | None = None


class EmbeddingItem(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    """Of the text in `input` that the vector belongs to."""
    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str
    """Numbers; or base64 of little-endian 32-bit floats, if `encoding_format` was `base64`."""


class EmbeddingList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[EmbeddingItem]
    model: str
    usage: TokenUsage | None = None
