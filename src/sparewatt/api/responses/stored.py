"""Stored responses: GET and DELETE /v1/responses/{id}, its input items, and POST …/cancel. Each key sees its own."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

from aiohttp import web

from sparewatt.api.endpoint import delete, get, post
from sparewatt.api.responses.streaming import EventStream, send_log
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import CANCEL, CancelReply, CancelRequest
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import RESPONSE_CANCEL_S
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.responses.registry import LiveResponse, ResponseRegistry
from sparewatt.inference.responses.shelf import Shelf, ShelfFactory, response_not_found
from sparewatt.protocol.api.responses import ResponseDeletion, ResponseItemList, ResponseObject
from sparewatt.protocol.responses.events import DONE, as_sse
from sparewatt.protocol.responses.replay import PAGE_ITEMS, PAGE_ITEMS_MAX, page, replay
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.response_object import FINAL

_ID = re.compile(r"resp_[0-9a-z]{1,60}")
_LOOK_AGAIN_S = 0.2
"""How often the store is polled for a response that another process or gateway writes."""
_NUMBER_MAX = 1 << 31


class StoredResponseEndpoints:
    def __init__(
        self, *, auth: Authenticator, shelves: ShelfFactory, registry: ResponseRegistry, peers: PeerClient
    ) -> None:
        self._auth = auth
        self._shelves = shelves
        self._registry = registry
        self._peers = peers

    @get("/v1/responses/{response_id}", reply=ResponseObject, query=("stream", "starting_after"), streams=True)
    async def show_response(self, request: web.Request) -> Json | web.StreamResponse:
        """Show a stored response, by its id."""
        shelf, response_id = await self._authenticate(request)
        if request.query.get("stream") == "true":
            return await self._replay(request, shelf, response_id)
        live = self._find_stored(shelf, response_id)
        return live.response if live is not None else (await shelf.find(response_id)).response

    @delete("/v1/responses/{response_id}")
    async def delete_response(self, request: web.Request) -> ResponseDeletion:
        """Delete a stored response; one that is being written stops."""
        shelf, response_id = await self._authenticate(request)
        live = self._find_stored(shelf, response_id)
        if not await shelf.delete(response_id):
            raise response_not_found(response_id)
        if live is not None:
            live.cancel()
        return ResponseDeletion(id=response_id)

    @get("/v1/responses/{response_id}/input_items", query=("limit", "order", "after"))
    async def list_input_items(self, request: web.Request) -> ResponseItemList:
        """List what a stored response was made from, in pages."""
        shelf, response_id = await self._authenticate(request)
        order = request.query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidField("The order is asc or desc.", param="order")
        limit = _number(request, "limit", default=PAGE_ITEMS, low=1, high=PAGE_ITEMS_MAX)
        stored = await shelf.find(response_id)
        after = request.query.get("after")
        items = page(stored.items, order="asc" if order == "asc" else "desc", limit=limit, after=after)
        return ResponseItemList(**items)

    @post("/v1/responses/{response_id}/cancel", reply=ResponseObject)
    async def cancel_response(self, request: web.Request) -> Json:
        """Stop a response that is being written.

        It need not be stored. One that is over is shown as it is: cancelling twice does no harm.
        """
        shelf, response_id = await self._authenticate(request)
        response = await self._cancel_here(response_id, shelf.key_id)
        if response is not None:
            return response
        for reply in await self._peers.ask_all(CANCEL, CancelRequest(response_id, shelf.key_id)):
            if reply.response is not None:
                return reply.response
        return await _cancel_by_store(shelf, response_id)

    # what other processes ask

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(CANCEL, self.answer_cancel)]

    async def answer_cancel(self, question: CancelRequest) -> CancelReply:
        return CancelReply(await self._cancel_here(question.response_id, KeyId(question.key_id)))

    # inside

    async def _authenticate(self, request: web.Request) -> tuple[Shelf, str]:
        """The shelf of the API key, and the id in the path. A session has no shelf. Raises ResponseNotFound."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        shelf = self._shelves.shelf_for(principal, request.headers.get("authorization"))
        response_id = request.match_info["response_id"]
        if shelf is None or not _ID.fullmatch(response_id):
            raise response_not_found(response_id)
        return shelf, response_id

    def _find_stored(self, shelf: Shelf, response_id: str) -> LiveResponse | None:
        """One that is being written here; what is not stored is not shown."""
        live = self._registry.find(response_id, key_id=shelf.key_id)
        return live if live is not None and live.is_stored else None

    async def _cancel_here(self, response_id: str, key_id: KeyId) -> Json | None:
        """The response as it stands then; None if this process does not write it."""
        live = self._registry.find(response_id, key_id=key_id)
        if live is None:
            return None
        live.cancel()
        with suppress(TimeoutError):  # the database is slow: it is cancelled, and not yet stored
            async with asyncio.timeout(RESPONSE_CANCEL_S):
                await live.over.wait()
        return live.response

    async def _replay(self, request: web.Request, shelf: Shelf, response_id: str) -> web.StreamResponse:
        """As a stream: live if its events are here, else once it is over, in larger pieces."""
        after = _number(request, "starting_after", default=-1, low=-1, high=_NUMBER_MAX)
        live = self._find_stored(shelf, response_id)
        if live is not None and live.log is not None:
            return await send_log(request, live.log, {}, after=after)
        response = (await shelf.find(response_id)).response
        stream = EventStream(request)
        async with stream.opened({}):
            while response["status"] not in FINAL:
                await asyncio.sleep(_LOOK_AGAIN_S)
                response = (await shelf.find(response_id)).response
            await stream.send([*map(as_sse, replay(response, after=after)), DONE])
        return stream.response


async def _cancel_by_store(shelf: Shelf, response_id: str) -> Json:
    """Another gateway may be writing it: that one looks for notes in the store once a second."""
    stored = await shelf.find(response_id)
    if stored.is_over:
        return stored.response
    await shelf.ask_to_cancel(response_id)
    for _ in range(int(RESPONSE_CANCEL_S / _LOOK_AGAIN_S)):
        await asyncio.sleep(_LOOK_AGAIN_S)
        stored = await shelf.find(response_id)
        if stored.is_over:
            break
    return stored.response


def _number(request: web.Request, name: str, *, default: int, low: int, high: int) -> int:
    """From the query string. Raises InvalidField."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        number = int(text) if len(text) < 12 else high + 1
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidField(f"'{name}' is a number from {low} to {high:,}.", param=name)
    return number
