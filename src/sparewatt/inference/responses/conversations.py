"""Conversations of one API key: items in their order, which responses read and add to. Each is kept for a day."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sparewatt.core.errors import ConversationNotFound, ItemNotFound, StorageFull, StoreUnavailable
from sparewatt.inference.responses.document_shelf import Document, DocumentShelf, SortOrder
from sparewatt.protocol.responses.request import RESPONSE_ITEMS_MAX, Json

FOLDER = "conversations"


@dataclass(frozen=True, slots=True)
class ConversationShelf:
    documents: DocumentShelf

    async def create(self, conversation: Json, items: Sequence[Json]) -> None:
        """Raises StorageFull."""
        await self.documents.put(FOLDER, [conversation])
        await self.append(conversation["id"], items)

    async def find(self, conversation_id: str) -> Json:
        """Raises ConversationNotFound."""
        return (await self._find(conversation_id)).value

    async def set_metadata(self, conversation_id: str, metadata: dict[str, str]) -> Json:
        """Raises ConversationNotFound."""
        conversation = await self.find(conversation_id) | {"metadata": metadata}
        if not await self.documents.replace(FOLDER, conversation):
            raise conversation_not_found(conversation_id)
        return conversation

    async def delete(self, conversation_id: str) -> None:
        """With its items. Raises ConversationNotFound."""
        if not await self.documents.delete(FOLDER, conversation_id):
            raise conversation_not_found(conversation_id)
        await self.documents.delete_folder(conversation_id)

    async def append(self, conversation_id: str, items: Sequence[Json]) -> None:
        """They are kept as long as the conversation. Raises ConversationNotFound or StorageFull."""
        found = await self._find(conversation_id)
        await self.documents.put(conversation_id, items, expires_at=found.expires_at)

    async def history(self, conversation_id: str) -> list[Json]:
        """All items, the oldest first. Raises ConversationNotFound."""
        await self.find(conversation_id)
        page = await self.documents.page(conversation_id, order="asc", limit=RESPONSE_ITEMS_MAX)
        return [document.value for document in page]

    async def page(
        self, conversation_id: str, *, order: SortOrder, limit: int, after: str | None
    ) -> tuple[list[Json], bool]:
        """Items, and whether there are more. Raises ConversationNotFound or ItemNotFound."""
        await self.find(conversation_id)
        number = None if after is None else (await self._item(conversation_id, after)).number
        found = await self.documents.page(conversation_id, order=order, limit=limit + 1, after=number)
        return [document.value for document in found[:limit]], len(found) > limit

    async def item(self, conversation_id: str, item_id: str) -> Json:
        """Raises ConversationNotFound or ItemNotFound."""
        await self.find(conversation_id)
        return (await self._item(conversation_id, item_id)).value

    async def delete_item(self, conversation_id: str, item_id: str) -> Json:
        """Returns the conversation. Raises ConversationNotFound or ItemNotFound."""
        conversation = await self.find(conversation_id)
        if not await self.documents.delete(conversation_id, item_id):
            raise _no_item(conversation_id, item_id)
        return conversation

    async def _find(self, conversation_id: str) -> Document:
        found = await self.documents.find(FOLDER, conversation_id)
        if found is None:
            raise conversation_not_found(conversation_id)
        return found

    async def _item(self, conversation_id: str, item_id: str) -> Document:
        found = await self.documents.find(conversation_id, item_id)
        if found is None:
            raise _no_item(conversation_id, item_id)
        return found


def conversation_not_found(conversation_id: str) -> ConversationNotFound:
    return ConversationNotFound(
        f"There is no conversation {conversation_id[:80]!r} of this key. One is kept for 24 h from its creation.",
        param="conversation",
    )


def _no_item(conversation_id: str, item_id: str) -> ItemNotFound:
    return ItemNotFound(f"The conversation {conversation_id[:80]!r} has no item {item_id[:80]!r}.", param="item_id")


@dataclass(frozen=True, slots=True)
class ConversationAddition:
    """What a response adds to the conversation that it belongs to, once it is over: its input and its output."""

    shelf: ConversationShelf
    conversation_id: str
    items: list[Json]

    async def add(self, response: Json) -> None:
        """Nothing if it failed or was cancelled. Without room, or without the database, the answer still comes."""
        if response["status"] not in ("completed", "incomplete"):
            return
        with suppress(StorageFull, StoreUnavailable, ConversationNotFound):
            items = {item["id"]: item for item in (*self.items, *response["output"])}
            await self.shelf.append(self.conversation_id, list(items.values()))
