"""Stored responses: GET and DELETE /v1/responses/{id}, its input items, and POST …/cancel. Each key sees its own."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from aiohttp import web

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import RESPONSE_CANCEL_S
from sparewatt.gateway.http import authenticate, json_reply
from sparewatt.gateway.openai.responses.registry import LiveResponse
from sparewatt.gateway.openai.responses.shelf import Shelf, not_found, shelf_of
from sparewatt.gateway.openai.responses.streaming import EventStream, send_log
from sparewatt.gateway.services import services_of
from sparewatt.gateway.siblings.questions import CANCEL, CancelAsked
from sparewatt.protocol.responses.events import DONE, as_sse
from sparewatt.protocol.responses.replay import PAGE_ITEMS, PAGE_ITEMS_MAX, page, replay
from sparewatt.protocol.responses.request import Json
from sparewatt.protocol.responses.resource import FINAL

_ID = re.compile(r"resp_[0-9a-z]{1,60}")
_LOOK_AGAIN_S = 0.2
_NUMBER_MAX = 1 << 31


async def show_response(request: web.Request) -> web.StreamResponse:
    shelf, response_id = await _enter(request)
    if request.query.get("stream") == "true":
        return await _replayed(request, shelf, response_id)
    live = _live(request, shelf, response_id)
    return json_reply(live.response if live is not None else (await shelf.find(response_id)).response)


async def delete_response(request: web.Request) -> web.StreamResponse:
    """One that is being written stops."""
    shelf, response_id = await _enter(request)
    live = _live(request, shelf, response_id)
    if not await shelf.delete(response_id):
        raise not_found(response_id)
    if live is not None:
        live.cancel()
    return json_reply({"id": response_id, "object": "response", "deleted": True})


async def list_input_items(request: web.Request) -> web.StreamResponse:
    shelf, response_id = await _enter(request)
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidField("The order is asc or desc.", param="order")
    limit = _number(request, "limit", default=PAGE_ITEMS, low=1, high=PAGE_ITEMS_MAX)
    kept = await shelf.find(response_id)
    after = request.query.get("after")
    return json_reply(page(kept.items, order="asc" if order == "asc" else "desc", limit=limit, after=after))


async def cancel_response(request: web.Request) -> web.StreamResponse:
    """Any that is being written, stored or not. One that is over is shown as it is: cancelling twice does no harm."""
    shelf, response_id = await _enter(request)
    live = services_of(request).responses.find(response_id, key_id=shelf.key_id)
    if live is None:
        for told in await services_of(request).siblings.asker.ask_all(CANCEL, CancelAsked(response_id, shelf.key_id)):
            if told.response is not None:
                return json_reply(told.response)
        return json_reply(await _cancel_elsewhere(shelf, response_id))
    live.cancel()
    with suppress(TimeoutError):  # the database is slow: it is cancelled, and not yet written down
        async with asyncio.timeout(RESPONSE_CANCEL_S):
            await live.over.wait()
    return json_reply(live.response)


async def _cancel_elsewhere(shelf: Shelf, response_id: str) -> Json:
    """Another gateway may be writing it: it looks for such wishes once a second."""
    kept = await shelf.find(response_id)
    if kept.is_over:
        return kept.response
    await shelf.ask_to_cancel(response_id)
    for _ in range(int(RESPONSE_CANCEL_S / _LOOK_AGAIN_S)):
        await asyncio.sleep(_LOOK_AGAIN_S)
        kept = await shelf.find(response_id)
        if kept.is_over:
            break
    return kept.response


async def _replayed(request: web.Request, shelf: Shelf, response_id: str) -> web.StreamResponse:
    """As a stream: live where it can be, else when it is over, in larger pieces."""
    after = _number(request, "starting_after", default=-1, low=-1, high=_NUMBER_MAX)
    live = _live(request, shelf, response_id)
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


async def _enter(request: web.Request) -> tuple[Shelf, str]:
    """Who asks, by their shelf, and for what. Nobody without a key has a shelf. Raises ResponseNotFound."""
    who = await authenticate(request, "inference")
    shelf, response_id = shelf_of(request, who), request.match_info["response_id"]
    if shelf is None or not _ID.fullmatch(response_id):
        raise not_found(response_id)
    return shelf, response_id


def _live(request: web.Request, shelf: Shelf, response_id: str) -> LiveResponse | None:
    live = services_of(request).responses.find(response_id, key_id=shelf.key_id)
    return live if live is not None and live.is_stored else None


def _number(request: web.Request, name: str, *, default: int, low: int, high: int) -> int:
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
