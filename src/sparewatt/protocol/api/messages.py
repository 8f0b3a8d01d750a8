"""`/v1/messages`, and `/v1/models` for Anthropic's clients. `protocol/anthropic/` makes messages of this form."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

MessageStopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class MessageUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    """Without those that were cached."""
    cache_creation_input_tokens: int
    """Always 0: nodes cache prefixes by themselves, and nobody pays for that."""
    cache_read_input_tokens: int
    output_tokens: int
    cost: float | UnsetType = UNSET
    """In dollars. Absent on a network without billing."""


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in Anthropic's shape."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    """As the request names it."""
    content: list[dict[str, Any]]
    """Blocks of the types `text`, `tool_use` and `thinking`."""
    stop_reason: MessageStopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageTokenCount(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    """Estimated from bytes: only nodes have tokenizers."""


class AnthropicModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as Anthropic's clients read it: to a request with the header `anthropic-version`."""

    type: Literal["model"] = "model"
    id: str
    display_name: str
    created_at: str
    """When the gateway started: models come and go with nodes."""
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None
    """The longest context of all nodes; None if no node reports it."""


class AnthropicModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[AnthropicModel]
    first_id: str | None
    last_id: str | None
    has_more: bool
    """Then `?after_id=` with `last_id` shows the next page."""
