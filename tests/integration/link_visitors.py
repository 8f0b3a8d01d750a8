"""Nodes that are nothing but their link: they join with many models and leave, or dial and never say a word.

They speak the real link protocol, from this process, and have no model server.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp
import msgspec

from sparewatt import __version__
from sparewatt.core.rng import SystemRng
from sparewatt.link.dialer import dial
from sparewatt.link.handshake import authenticate_to_gateway, host_of
from sparewatt.link.sockets import Socket
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import SigningKey
from tests.integration.hostile.loiterers import is_over
from tests.unit.protocol.reports import MODEL, SPECS

KNOCK_S = 0.05
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def specs_with(model_count: int, *, name: str) -> NodeSpecs:
    """A report of models that nobody else has."""
    models = tuple(msgspec.structs.replace(MODEL, id=f"{name}/model-{number:04}") for number in range(model_count))
    return msgspec.structs.replace(SPECS, name=name, models=models)


@dataclass(slots=True, kw_only=True)
class Visitor:
    """A key with the token of an account, to join any number of times."""

    root_url: str
    token: str | None
    key: SigningKey
    specs: NodeSpecs

    async def join(self, session: aiohttp.ClientSession) -> Socket:
        """Raises JoinRefused or LinkLost."""
        link = await dial(self.root_url + LINK_PATH, session=session)
        try:
            await authenticate_to_gateway(
                link,
                key=self.key,
                host=host_of(self.root_url),
                token=self.token,
                specs=self.specs,
                agent_version=__version__,
                rng=SystemRng(),
            )
        except BaseException:
            link.abort()
            raise
        return link


def visitors(root_url: str, count: int, *, models: int, make_token: Callable[[], str], name: str) -> list[Visitor]:
    return [
        Visitor(
            root_url=root_url,
            token=make_token(),
            key=SigningKey.generate(rng=SystemRng()),
            specs=specs_with(models, name=f"{name}-{number:03}"),
        )
        for number in range(count)
    ]


@asynccontextmanager
async def joined(crowd: Sequence[Visitor]) -> AsyncIterator[list[Socket | BaseException]]:
    """All of them at once, until the block ends. In place of a link, why a visitor was refused."""
    async with aiohttp.ClientSession() as session:
        links = await asyncio.gather(*(visitor.join(session) for visitor in crowd), return_exceptions=True)
        try:
            yield links
        finally:
            for link in links:
                if isinstance(link, Socket):
                    link.abort()


def silent_sockets(root_url: str, count: int) -> list[socket.socket]:
    """WebSockets to the path of the links that never send a message."""
    parts = urlsplit(root_url)
    assert parts.hostname is not None
    opened = [socket.create_connection((parts.hostname, parts.port or 80), timeout=30) for _ in range(count)]
    request = UPGRADE.format(path=LINK_PATH, host=parts.netloc).encode()
    for each in opened:
        each.sendall(request)
    return opened


@contextmanager
def knocking(root_url: str, count: int) -> Iterator[None]:
    """So many silent WebSockets all the while: each that is ended is opened again."""
    stop = threading.Event()

    def knock() -> None:
        held = silent_sockets(root_url, count)
        try:
            while not stop.wait(KNOCK_S):
                over = [each for each in held if is_over(each)]
                for each in over:
                    held.remove(each)
                    each.close()
                held += silent_sockets(root_url, len(over))
        finally:
            for each in held:
                each.close()

    with ThreadPoolExecutor(1) as pool:
        knocked = pool.submit(knock)
        try:
            yield
            assert not knocked.done(), "the knocking ended early"
        finally:
            stop.set()
            knocked.result()
