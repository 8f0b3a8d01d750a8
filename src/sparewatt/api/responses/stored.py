"""Stored responses: GET and DELETE /v1/responses/{id}, its input items, and POST …/cancel. Each key sees its own."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.api.query import choice
from sparewatt.api.responses.streaming import EventStream, send_log
from sparewatt.cluster.peer_rpc import PeerClient, PeerHandler
from sparewatt.cluster.questions import CANCEL, CancelReply, CancelRequest
from sparewatt.core.errors import InvalidField
from sparewatt.core.ids import KeyId
from sparewatt.edge.auth import authorization_of
from sparewatt.edge.bodies import whole_number
from sparewatt.inference.responses.registry import LiveResponse, ResponseRegistry
from sparewatt.inference.responses.shelf import Shelf, ShelfFactory, response_not_found
from sparewatt.protocol.api.responses import ResponseDeletion, ResponseItemList, ResponseObject
from sparewatt.protocol.responses.events import DONE, as_sse
from sparewatt.protocol.responses.replay import PAGE_ITEMS, PAGE_ITEMS_MAX, page, replay
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.response_object import FINAL

_ID = re.compile(r"resp_[0-9a-z]{1,60}")
_EVENT_NUMBER = re.compile(r"-1|[0-9]{1,9}")
RESPONSE_CANCEL_S = 5.0
"""How long a request to cancel waits for the gateway that writes the response, which polls the store once a second."""
POLL_S = 0.2
"""How often the store is polled for a response that another process or gateway writes."""


@dataclass(slots=True, kw_only=True)
class StoredResponseEndpoints:
    shelves: ShelfFactory
    registry: ResponseRegistry
    peers: PeerClient

    @endpoint(
        "GET /v1/responses/{response_id}",
        access="inference",
        reply=ResponseObject,
        query=("stream", "starting_after"),
        streams=True,
    )
    async def show_response(self, request: web.Request, principal: Principal) -> Json | web.StreamResponse:
        """Show a stored response, by its id."""
        shelf, response_id = self._find_shelf(request, principal)
        if request.query.get("stream") == "true":
            return await self._replay(request, shelf, response_id)
        live = self._find_kept(shelf, response_id)
        return live.response if live is not None else (await shelf.find(response_id)).response

    @endpoint("DELETE /v1/responses/{response_id}", access="inference")
    async def delete_response(self, request: web.Request, principal: Principal) -> ResponseDeletion:
        """Delete a stored response; one that is being written stops."""
        shelf, response_id = self._find_shelf(request, principal)
        live = self._find_kept(shelf, response_id)
        if not await shelf.delete(response_id) and live is None:
            raise response_not_found(response_id, shelf.retention)
        if live is not None:
            live.forget()
        return ResponseDeletion(id=response_id)

    @endpoint("GET /v1/responses/{response_id}/input_items", access="inference", query=("limit", "order", "after"))
    async def list_input_items(self, request: web.Request, principal: Principal) -> ResponseItemList:
        """List what a stored response was made from, in pages."""
        shelf, response_id = self._find_shelf(request, principal)
        order: Literal["asc", "desc"] = choice(request, "order", ("desc", "asc"))
        limit = whole_number(request, "limit", default=PAGE_ITEMS, most=PAGE_ITEMS_MAX)
        stored = await shelf.find(response_id)
        return ResponseItemList(**page(stored.items, order=order, limit=limit, after=request.query.get("after")))

    @endpoint("POST /v1/responses/{response_id}/cancel", access="inference", reply=ResponseObject)
    async def cancel_response(self, request: web.Request, principal: Principal) -> Json:
        """Stop a response that is being written.

        It need not be stored. One that is over is shown as it is: cancelling twice does no harm.
        """
        shelf, response_id = self._find_shelf(request, principal)
        response = await self._cancel_here(response_id, shelf.key_id)
        if response is not None:
            return response
        for reply in await self.peers.ask_all(CANCEL, CancelRequest(response_id, shelf.key_id)):
            if reply.response is not None:
                return reply.response
        return await _cancel_by_store(shelf, response_id)

    # for the other processes of this gateway

    def handlers(self) -> list[PeerHandler[Any, Any]]:
        return [PeerHandler(CANCEL, self.answer_cancel)]

    async def answer_cancel(self, question: CancelRequest) -> CancelReply:
        return CancelReply(await self._cancel_here(question.response_id, KeyId(question.key_id)))

    # what the endpoints share

    def _find_shelf(self, request: web.Request, principal: Principal) -> tuple[Shelf, str]:
        """The shelf of the API key, and the id in the path. A session has no shelf. Raises ResponseNotFound."""
        shelf = self.shelves.shelf_for(principal, authorization_of(request.headers))
        response_id = request.match_info["response_id"]
        if shelf is None or not _ID.fullmatch(response_id):
            raise response_not_found(response_id)
        return shelf, response_id

    def _find_kept(self, shelf: Shelf, response_id: str) -> LiveResponse | None:
        """One that is being written here; what is not kept is not shown."""
        live = self.registry.find(response_id, key_id=shelf.key_id)
        return live if live is not None and live.is_kept else None

    async def _cancel_here(self, response_id: str, key_id: KeyId) -> Json | None:
        """The response as far as it is written then; None if this process does not write it."""
        live = self.registry.find(response_id, key_id=key_id)
        if live is None:
            return None
        live.cancel()
        with suppress(TimeoutError):  # the database is slow: it is cancelled, and not yet stored
            async with asyncio.timeout(RESPONSE_CANCEL_S):
                await live.over.wait()
        return live.response

    async def _replay(self, request: web.Request, shelf: Shelf, response_id: str) -> web.StreamResponse:
        """As a stream: live if its events are here, else once it is over, in larger pieces."""
        after = _starting_after(request)
        live = self._find_kept(shelf, response_id)
        if live is not None and live.log is not None:
            return await send_log(request, live.log, {}, after=after)
        response = (await shelf.find(response_id)).response
        stream = EventStream(request, {})
        async with stream.opened():
            while response["status"] not in FINAL:
                await asyncio.sleep(POLL_S)
                response = (await shelf.find(response_id)).response
            await stream.send([*map(as_sse, replay(response, after=after)), DONE])
        return stream.response


async def _cancel_by_store(shelf: Shelf, response_id: str) -> Json:
    """For a response that another gateway writes: it polls the store for requests to cancel once a second."""
    stored = await shelf.find(response_id)
    if stored.is_over:
        return stored.response
    await shelf.ask_to_cancel(response_id)
    for _ in range(int(RESPONSE_CANCEL_S / POLL_S)):
        await asyncio.sleep(POLL_S)
        stored = await shelf.find(response_id)
        if stored.is_over:
            break
    return stored.response


def _starting_after(request: web.Request) -> int:
    """The number of the last event that the client has; -1 if it has none. Raises InvalidField."""
    text = request.query.get("starting_after", "-1")
    if not _EVENT_NUMBER.fullmatch(text):
        raise InvalidField("'starting_after' is a number of an event, or -1 for all of them.", param="starting_after")
    return int(text)
