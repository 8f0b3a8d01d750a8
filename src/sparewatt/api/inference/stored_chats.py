"""Stored chat completions: list, show, change, delete, and their messages. Each key sees its own, for a day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.query import choice
from sparewatt.edge.auth import authorization_of
from sparewatt.edge.bodies import read_json, whole_number
from sparewatt.inference.responses.completions import CompletionShelf, completion_not_found
from sparewatt.inference.responses.shelf import ShelfFactory
from sparewatt.protocol.api.inference import ChatCompletion
from sparewatt.protocol.api.stored_chats import (
    StoredChatChange,
    StoredChatDeletion,
    StoredChatList,
    StoredChatMessageList,
)
from sparewatt.protocol.responses.replay import PAGE_ITEMS, PAGE_ITEMS_MAX, page
from sparewatt.protocol.responses.request import Json, check_metadata

_METADATA = re.compile(r"metadata\[(.{1,64})\]")


@dataclass(slots=True, kw_only=True)
class StoredChatEndpoints:
    shelves: ShelfFactory

    @endpoint("GET /v1/chat/completions", access="inference", query=("limit", "order", "after", "model", "metadata"))
    async def list_chat_completions(self, request: web.Request, principal: Principal) -> StoredChatList:
        """List stored chat completions, in pages; by model and by metadata, if that is asked for."""
        shelf = self._shelf(request, principal)
        order: Literal["asc", "desc"] = choice(request, "order", ("asc", "desc"))
        limit = whole_number(request, "limit", default=PAGE_ITEMS, most=PAGE_ITEMS_MAX)
        found = {key[1]: value for name, value in request.query.items() if (key := _METADATA.fullmatch(name))}
        if shelf is None:
            return _list_of([], has_more=False)
        completions, has_more = await shelf.page(
            order=order,
            limit=limit,
            after=request.query.get("after"),
            model=request.query.get("model"),
            metadata=found,
        )
        return _list_of(completions, has_more=has_more)

    @endpoint("GET /v1/chat/completions/{completion_id}", access="inference", reply=ChatCompletion)
    async def show_chat_completion(self, request: web.Request, principal: Principal) -> Json:
        """Show a stored chat completion, by its id."""
        completion: Json = (await self._document(request, principal))["completion"]
        return completion

    @endpoint(
        "POST /v1/chat/completions/{completion_id}", access="inference", body=StoredChatChange, reply=ChatCompletion
    )
    async def change_chat_completion(self, request: web.Request, principal: Principal) -> Json:
        """Replace the metadata of a stored chat completion."""
        shelf, completion_id = self._find(request, principal)
        body = await read_json(request, StoredChatChange)
        check_metadata(body.metadata or {})
        return await shelf.set_metadata(completion_id, body.metadata or {})

    @endpoint("DELETE /v1/chat/completions/{completion_id}", access="inference")
    async def delete_chat_completion(self, request: web.Request, principal: Principal) -> StoredChatDeletion:
        """Delete a stored chat completion."""
        shelf, completion_id = self._find(request, principal)
        await shelf.delete(completion_id)
        return StoredChatDeletion(id=completion_id)

    @endpoint(
        "GET /v1/chat/completions/{completion_id}/messages", access="inference", query=("limit", "order", "after")
    )
    async def list_chat_messages(self, request: web.Request, principal: Principal) -> StoredChatMessageList:
        """List the messages that a stored chat completion answers, in pages."""
        messages = (await self._document(request, principal))["messages"]
        order: Literal["asc", "desc"] = choice(request, "order", ("asc", "desc"))
        limit = whole_number(request, "limit", default=PAGE_ITEMS, most=PAGE_ITEMS_MAX)
        return StoredChatMessageList(**page(messages, order=order, limit=limit, after=request.query.get("after")))

    def _shelf(self, request: web.Request, principal: Principal) -> CompletionShelf | None:
        """None for a browser's session."""
        shelf = self.shelves.shelf_for(principal, authorization_of(request.headers))
        return CompletionShelf(shelf.documents) if shelf is not None else None

    def _find(self, request: web.Request, principal: Principal) -> tuple[CompletionShelf, str]:
        """Raises CompletionNotFound."""
        shelf, completion_id = self._shelf(request, principal), request.match_info["completion_id"]
        if shelf is None:
            raise completion_not_found(completion_id)
        return shelf, completion_id

    async def _document(self, request: web.Request, principal: Principal) -> Json:
        shelf, completion_id = self._find(request, principal)
        return await shelf.find(completion_id)


def _list_of(completions: list[Json], *, has_more: bool) -> StoredChatList:
    first, last = (completions[0]["id"], completions[-1]["id"]) if completions else (None, None)
    return StoredChatList(data=completions, first_id=first, last_id=last, has_more=has_more)
