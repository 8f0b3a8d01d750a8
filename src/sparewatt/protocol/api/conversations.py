"""`/v1/conversations`, in OpenAI's shapes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

CONVERSATION_ITEMS_PER_REQUEST_MAX = 20
"""OpenAI's own bound."""
ConversationItems = Annotated[list[dict[str, Any]], Meta(max_length=CONVERSATION_ITEMS_PER_REQUEST_MAX)]
"""Items as in the `input` of a response."""


class NewConversation(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, str] | None = None
    """Up to 16 pairs."""
    items: ConversationItems | None = None


class ConversationChange(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, str] | None
    """Replaces all of it."""


class NewConversationItems(msgspec.Struct, frozen=True, kw_only=True):
    items: ConversationItems


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    """Unix seconds. It is kept for 24 h, sealed under the API key."""
    metadata: dict[str, str]


class ConversationDeletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True
