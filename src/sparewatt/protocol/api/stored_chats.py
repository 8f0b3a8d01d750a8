"""Stored chat completions, in OpenAI's shapes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class StoredChatList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    """Chat completions, each with its `metadata`."""
    first_id: str | None
    last_id: str | None
    """The next page begins after it (`?after=`)."""
    has_more: bool


class StoredChatMessageList(StoredChatList, frozen=True, kw_only=True):
    """A page of the messages that a chat completion answers, each with an `id`."""


class StoredChatChange(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, str] | None
    """Replaces all of it."""


class StoredChatDeletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True
