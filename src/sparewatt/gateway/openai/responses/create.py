"""POST /v1/responses: read, make a chat of it, and write what comes back as a response."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.gateway.http import ASKED, json_reply, read_body
from sparewatt.gateway.openai.answer import refusal, reply_headers
from sparewatt.gateway.openai.errand import Errand
from sparewatt.gateway.openai.responses.draft import Draft, draft_response, id_maker
from sparewatt.gateway.openai.responses.event_log import EventLog
from sparewatt.gateway.openai.responses.live import Live
from sparewatt.gateway.openai.responses.shelf import Shelf, shelf_of
from sparewatt.gateway.openai.responses.streaming import EventStream, send_log
from sparewatt.gateway.openai.serving import Caller, answer_once, enter, errand_for
from sparewatt.gateway.openai.sink import BufferedSink
from sparewatt.gateway.services import Services, services_of
from sparewatt.protocol.responses.request import Asked, parse_request
from sparewatt.protocol.responses.translate import Translator

STORE_HEADER = "x-sparewatt-store"


@dataclass(frozen=True, slots=True)
class Order:
    """One request, ready to go. `shelf` is there if its response is to be stored."""

    request: web.Request
    caller: Caller
    draft: Draft
    shelf: Shelf | None
    stream: bool
    background: bool
    expires_at: dt.datetime | None = None

    @property
    def services(self) -> Services:
        return services_of(self.request)

    def headers(self) -> dict[str, str]:
        """`store` is false unless it was asked for, which differs from OpenAI: every reply says which it was."""
        if self.expires_at is None:
            return {STORE_HEADER: "false"}
        return {STORE_HEADER: f"true; until={self.expires_at.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"}


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer items, whole, as a stream of events, or in the background."""
    caller = await enter(request[ASKED])
    body = await read_body(request, limit=REQUEST_BODY_BYTES_MAX)
    return await answer_once(request[ASKED], caller, body, lambda: _create(request, caller, parse_request(body)))


async def _create(request: web.Request, caller: Caller, asked: Asked) -> web.StreamResponse:
    services, shelf = services_of(request), shelf_of(request, caller.who)
    if asked.request.background:
        services.responses.refuse_too_many(caller.who.key_id)
    now = int(services.clock.unix_s())
    draft = await draft_response(asked, shelf, make_id=id_maker(services.rng), now=now)
    stores = shelf if asked.request.stores else None
    expires_at = await stores.put(draft.response, draft.items) if stores is not None else None
    order = Order(
        request, caller, draft, stores, bool(asked.request.stream), bool(asked.request.background), expires_at
    )
    async with AsyncExitStack() as stack:
        live = await stack.enter_async_context(_living(order))
        if order.background:
            return await _in_background(order, live, stack.pop_all())
        return await (_streamed if order.stream else _whole)(order, live)


@asynccontextmanager
async def _living(order: Order) -> AsyncIterator[Live]:
    """Under way, and known by its name. Of who leaves early, what was written is kept; what never began is not."""
    services, live = order.services, None
    try:
        async with errand_for(order.request[ASKED], order.caller, order.draft.call) as errand:
            translator = Translator(order.draft.response, new_id=id_maker(services.rng))
            key_id = order.caller.who.key_id
            live = Live(errand, translator, key_id=key_id, shelf=order.shelf, clock=services.clock)
            services.responses.add(live)
            try:
                yield live
            finally:
                services.responses.remove(live)
    finally:
        if live is not None and live.has_begun:
            if not live.over.is_set():
                services.responses.spawn(live.abandon())
        elif order.shelf is not None:
            services.responses.spawn(order.shelf.forget(order.draft.response["id"]))


async def _whole(order: Order, live: Live) -> web.StreamResponse:
    await live.errand.sink.begun()
    refused = refusal(live.errand)
    if refused is not None:
        return refused
    live.has_begun = True
    response = await live.whole()
    return json_reply(response, headers=_headers(order, live.errand))


async def _streamed(order: Order, live: Live) -> web.StreamResponse:
    """Whatever is wrong before the first token is an HTTP error, unless that took so long that the stream had begun."""
    stream = EventStream(order.request)
    if not await stream.is_silent(live.errand.sink.begun()):
        refused = refusal(live.errand)
        if refused is not None:
            return refused
    live.has_begun = True
    async with stream.opened(_headers(order, live.errand)):
        await live.begin(stream.send)
        await live.stream(stream.send)
    return stream.response


async def _in_background(order: Order, live: Live, stack: AsyncExitStack) -> web.StreamResponse:
    """It goes on when the client has gone; what comes of it is fetched by its name."""
    live.has_begun = True
    live.log = log = EventLog()

    async def write() -> None:
        async with stack:
            try:
                await live.begin(log.add)
                await live.stream(log.add)
            finally:
                log.close()

    order.services.responses.spawn(write(), key_id=order.caller.who.key_id)
    headers = order.headers() | {"x-sparewatt-match-id": live.errand.job.match.id}
    if order.stream:
        return await send_log(order.request, log, headers)
    status = "queued" if live.errand.run is None else "in_progress"
    return json_reply(live.response | {"status": status}, headers=headers)


def _headers(order: Order, errand: Errand[BufferedSink]) -> dict[str, str]:
    own = {name: value for name, value in reply_headers(errand, errand.sink.headers).items() if name != "content-type"}
    return {"x-sparewatt-match-id": errand.job.match.id} | own | order.headers()
