"""/v1/conversations: a conversation with its items. Each key sees its own, for a day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ItemNotFound
from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.edge.auth import authorization_of
from sparewatt.edge.bodies import read_json, whole_number
from sparewatt.inference.responses.conversations import ConversationShelf, conversation_not_found
from sparewatt.inference.responses.retention import require_day
from sparewatt.inference.responses.shelf import ShelfFactory, require_shelf
from sparewatt.protocol.api.conversations import (
    ConversationChange,
    ConversationDeletion,
    ConversationObject,
    NewConversation,
    NewConversationItems,
)
from sparewatt.protocol.api.responses import ResponseItemList
from sparewatt.protocol.responses.input_items import NewId, read_stored_items
from sparewatt.protocol.responses.replay import PAGE_ITEMS, PAGE_ITEMS_MAX
from sparewatt.protocol.responses.request import Json, check_metadata

_ID = re.compile(r"conv_[0-9a-z]{1,60}")
_ITEM_ID = re.compile(r"[0-9a-zA-Z_-]{1,100}")


@dataclass(slots=True, kw_only=True)
class ConversationEndpoints:
    shelves: ShelfFactory
    make_id: NewId
    clock: Clock

    @endpoint("POST /v1/conversations", access="inference", body=NewConversation)
    async def create_conversation(self, request: web.Request, principal: Principal) -> ConversationObject:
        """Begin a conversation, with its first items if there are any."""
        body = await read_json(request, NewConversation, limit=REQUEST_BODY_BYTES_MAX)
        check_metadata(body.metadata or {})
        items = read_stored_items(body.items or [], at="items", new_id=self.make_id)
        conversation: Json = {
            "id": self.make_id("conv"),
            "created_at": int(self.clock.unix_s()),
            "metadata": body.metadata or {},
        }
        await self._shelf(request, principal).create(conversation, items)
        return ConversationObject(**conversation)

    @endpoint("GET /v1/conversations/{conversation_id}", access="inference")
    async def show_conversation(self, request: web.Request, principal: Principal) -> ConversationObject:
        """Show a conversation, by its id."""
        shelf, conversation_id = self._find(request, principal)
        return ConversationObject(**await shelf.find(conversation_id))

    @endpoint("POST /v1/conversations/{conversation_id}", access="inference", body=ConversationChange)
    async def change_conversation(self, request: web.Request, principal: Principal) -> ConversationObject:
        """Replace a conversation's metadata."""
        shelf, conversation_id = self._find(request, principal)
        body = await read_json(request, ConversationChange)
        check_metadata(body.metadata or {})
        return ConversationObject(**await shelf.set_metadata(conversation_id, body.metadata or {}))

    @endpoint("DELETE /v1/conversations/{conversation_id}", access="inference")
    async def delete_conversation(self, request: web.Request, principal: Principal) -> ConversationDeletion:
        """Delete a conversation and its items."""
        shelf, conversation_id = self._find(request, principal)
        await shelf.delete(conversation_id)
        return ConversationDeletion(id=conversation_id)

    # items

    @endpoint("POST /v1/conversations/{conversation_id}/items", access="inference", body=NewConversationItems)
    async def add_conversation_items(self, request: web.Request, principal: Principal) -> ResponseItemList:
        """Add items at the end of a conversation."""
        shelf, conversation_id = self._find(request, principal)
        body = await read_json(request, NewConversationItems, limit=REQUEST_BODY_BYTES_MAX)
        items = read_stored_items(body.items, at="items", new_id=self.make_id)
        await shelf.append(conversation_id, items)
        return _item_list(items, has_more=False)

    @endpoint(
        "GET /v1/conversations/{conversation_id}/items",
        access="inference",
        query=("limit", "order", "after", "include"),
    )
    async def list_conversation_items(self, request: web.Request, principal: Principal) -> ResponseItemList:
        """List a conversation's items, in pages."""
        shelf, conversation_id = self._find(request, principal)
        order: Literal["asc", "desc"] = choice(request, "order", ("desc", "asc"))
        limit = whole_number(request, "limit", default=PAGE_ITEMS, most=PAGE_ITEMS_MAX)
        after = request.query.get("after")
        items, has_more = await shelf.page(conversation_id, order=order, limit=limit, after=after)
        return _item_list(items, has_more=has_more)

    @endpoint(
        "GET /v1/conversations/{conversation_id}/items/{item_id}", access="inference", reply=dict, query=("include",)
    )
    async def show_conversation_item(self, request: web.Request, principal: Principal) -> Json:
        """Show one item of a conversation."""
        shelf, conversation_id = self._find(request, principal)
        return await shelf.item(conversation_id, _item_id(request))

    @endpoint("DELETE /v1/conversations/{conversation_id}/items/{item_id}", access="inference")
    async def delete_conversation_item(self, request: web.Request, principal: Principal) -> ConversationObject:
        """Delete one item of a conversation; replies with the conversation."""
        shelf, conversation_id = self._find(request, principal)
        return ConversationObject(**await shelf.delete_item(conversation_id, _item_id(request)))

    def _shelf(self, request: web.Request, principal: Principal) -> ConversationShelf:
        """Raises UnsupportedParameter for a session, and RetentionForbidden."""
        shelf = require_shelf(self.shelves.shelf_for(principal, authorization_of(request.headers)), param=None)
        require_day(shelf.retention, param=None)
        return shelf.conversations

    def _find(self, request: web.Request, principal: Principal) -> tuple[ConversationShelf, str]:
        """A session has none. Raises ConversationNotFound."""
        shelf = self.shelves.shelf_for(principal, authorization_of(request.headers))
        conversation_id = request.match_info["conversation_id"]
        if shelf is None or not _ID.fullmatch(conversation_id):
            raise conversation_not_found(conversation_id)
        return shelf.conversations, conversation_id


def _item_id(request: web.Request) -> str:
    item_id = request.match_info["item_id"]
    if not _ITEM_ID.fullmatch(item_id):
        raise ItemNotFound(f"There is no item {item_id[:80]!r}.", param="item_id")
    return item_id


def _item_list(items: list[Json], *, has_more: bool) -> ResponseItemList:
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return ResponseItemList(data=items, first_id=first, last_id=last, has_more=has_more)
