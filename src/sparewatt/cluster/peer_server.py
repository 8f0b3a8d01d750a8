"""The server for questions of the other processes of this gateway: on loopback, with a secret from the parent process.

It only carries questions and answers. Which questions this process answers, and how, comes in by argument: each view
of the gateway's state brings its own handlers.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
from aiohttp import web

from sparewatt.cluster.peer_client import LOOPBACK
from sparewatt.cluster.process_slot import ProcessSlot
from sparewatt.cluster.questions import PEER_BODY_BYTES_MAX, PeerQuestion
from sparewatt.edge.server import listen

A = TypeVar("A")
T = TypeVar("T")


class PeerHandler(NamedTuple, Generic[A, T]):
    question: PeerQuestion[A, T]
    answer: Callable[[A], Awaitable[T]]


@runtime_checkable
class PeerView(Protocol):
    """A view of this process's state that peers may ask for."""

    def handlers(self) -> list[PeerHandler[Any, Any]]: ...


def make_peer_app(slot: ProcessSlot, handlers: Iterable[PeerHandler[Any, Any]]) -> web.Application:
    expected = f"Bearer {slot.secret}".encode()
    by_name = {handler.question.name: handler for handler in handlers}

    async def answer(request: web.Request) -> web.Response:
        token = request.headers.get("authorization", "").encode(errors="replace")
        if not slot.secret or not hmac.compare_digest(token, expected):
            return web.Response(status=401)
        handler = by_name.get(request.match_info["question"])
        if handler is None:
            return web.Response(status=404)
        try:
            question = msgspec.json.decode(await request.read(), type=handler.question.request)
        except msgspec.DecodeError:
            return web.Response(status=400)
        reply = await handler.answer(question)
        return web.Response(body=msgspec.json.encode(reply), content_type="application/json")

    app = web.Application(client_max_size=PEER_BODY_BYTES_MAX)
    app.add_routes([web.post("/{question}", answer)])
    return app


@asynccontextmanager
async def answering_peers(slot: ProcessSlot, handlers: Iterable[PeerHandler[Any, Any]]) -> AsyncIterator[None]:
    """Answer the others as long as this context lasts."""
    listener = listen(LOOPBACK, slot.peer_ports[slot.number], shared=True)
    runner = web.AppRunner(
        make_peer_app(slot, handlers), handler_cancellation=True, access_log=None, shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
