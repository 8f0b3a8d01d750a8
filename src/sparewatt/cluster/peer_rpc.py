"""Which process of a gateway this is, and remote calls to the others: JSON over HTTP on loopback, with a shared secret.

It only carries questions and answers. Which questions a process answers, and how, comes in by argument: each view of
the gateway's state brings its own handlers. A process that does not answer in time is left out.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import aiohttp
import msgspec
from aiohttp import web

from sparewatt.cluster.questions import PEER_BODY_BYTES_MAX, PeerQuestion
from sparewatt.core.rng import Rng
from sparewatt.edge.server import listen

A = TypeVar("A")
T = TypeVar("T")
LOOPBACK = "127.0.0.1"
_SECRET_BYTES = 32


class ProcessSlot(msgspec.Struct, frozen=True):
    """The same in every process of one start, but for `number`."""

    number: int = 0
    link_ports: tuple[int, ...] = ()
    """Where each process accepts links; they stay the same when a process restarts."""
    peer_ports: tuple[int, ...] = ()
    """Where each answers the others, on loopback."""
    metrics_ports: tuple[int, ...] = ()
    """Where each exposes its metrics; empty if metrics are off."""
    secret: str = ""
    """The bearer token between processes."""
    prompt_secret: str = ""
    """Keys the digests of requests: the same request has the same digest in every process."""

    @property
    def count(self) -> int:
        return max(1, len(self.peer_ports))

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(number for number in range(len(self.peer_ports)) if number != self.number)

    @property
    def link_port(self) -> int | None:
        return self.link_ports[self.number] if self.link_ports else None


ALONE = ProcessSlot()
"""A gateway that is one process."""


def new_slots(
    *, link_ports: tuple[int, ...], peer_ports: tuple[int, ...], metrics_ports: tuple[int, ...] = (), rng: Rng
) -> list[ProcessSlot]:
    secret, prompt_secret = rng.randbytes(_SECRET_BYTES).hex(), rng.randbytes(_SECRET_BYTES).hex()
    return [
        ProcessSlot(number, link_ports, peer_ports, metrics_ports, secret=secret, prompt_secret=prompt_secret)
        for number in range(len(peer_ports))
    ]


@dataclass(slots=True, eq=False, repr=False)
class PeerClient:
    """Addresses processes by their number. Made before there is an event loop."""

    slot: ProcessSlot
    _session: aiohttp.ClientSession | None = None
    _sending: set[asyncio.Task[object]] = field(default_factory=set)

    async def ask(self, number: int, question: PeerQuestion[A, T], request: A) -> T | None:
        """None if that process is down, does not answer in time, or answers with an error."""
        url = f"http://{LOOPBACK}:{self.slot.peer_ports[number]}/{question.name}"
        try:
            async with (
                asyncio.timeout(question.within_s),
                self._open_session().post(url, data=msgspec.json.encode(request)) as reply,
            ):
                if reply.status != 200 or (reply.content_length or 0) > PEER_BODY_BYTES_MAX:
                    return None
                return msgspec.json.decode(await reply.read(), type=question.reply)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return None

    async def ask_all(self, question: PeerQuestion[A, T], request: A) -> list[T]:
        """Ask all others at once. Returns the replies that came; an empty list if this is the only process."""
        replies = await asyncio.gather(*(self.ask(number, question, request) for number in self.slot.others))
        return [reply for reply in replies if reply is not None]

    def send(self, number: int, question: PeerQuestion[A, T], request: A) -> None:
        """Ask without waiting for the reply."""
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(self.ask(number, question, request))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        if self._sending:
            await asyncio.wait(list(self._sending), timeout=1.0)
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"authorization": f"Bearer {self.slot.secret}"},
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


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
