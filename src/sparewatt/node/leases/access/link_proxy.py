"""The one port of the host that a lease with `gateway` reaches: a proxy from its bridge to this agent's own gateway.

It takes one kind of request, the WebSocket upgrade of a node's link, and writes the request that the gateway gets by
itself: no header of the tenant's but the key of the handshake passes, so nothing of it (cookies, credentials,
X-Forwarded-For) can speak for this machine or its owner. Bytes are relayed only after the gateway has switched
protocols; a tenant cannot append a request of another kind. Other pages of the gateway are not reached.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparewatt.core.clock import Clock
from sparewatt.core.limits import KIB
from sparewatt.core.log import Logger
from sparewatt.protocol.link.frames import LINK_PATH

_log = Logger("sparewatt.node")
LINKS_MAX = 72
"""At once, of one lease: one to each of 64 processes of a gateway, and some that are being replaced."""
DIALS_PER_S, DIALS_AT_ONCE = 1.0, 72.0
"""In the long run, and in a burst. The gateway counts handshakes by address, and this is the owner's address, too."""
HEAD_BYTES_MAX = 8 * KIB
HEAD_S = 10.0
IDLE_S = 300.0
"""A link has heartbeats every few seconds."""
READ_BYTES = 32 * KIB
_REQUEST = re.compile(rf"GET {re.escape(LINK_PATH)}(?:\?port=([1-9][0-9]{{0,4}}))? HTTP/1\.1", re.ASCII)
_KEY = re.compile(r"[A-Za-z0-9+/]{22}==", re.ASCII)
"""16 bytes in base 64, as RFC 6455 has it."""
_SWITCHED = re.compile(rb"HTTP/1\.1 101[ \r]")
_REASONS = {400: "Bad Request", 403: "Forbidden", 429: "Too Many Requests"}


class RefusedUpgrade(Exception):
    """What came is not the opening of a node's link."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


@dataclass(frozen=True, slots=True)
class LinkUpgrade:
    """All that is taken over from a tenant's request."""

    port: int | None
    """Of the gateway's process; None: the gateway's own."""
    key: str


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where this agent's gateway is. Never with the name and password that its owner's URL may have."""

    host: str
    port: int
    has_tls: bool

    @classmethod
    def of(cls, url: str) -> GatewayAddress:
        parts = urlsplit(url)
        has_tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if has_tls else 80), has_tls)

    @property
    def url(self) -> str:
        """As a node that joins by this proxy is told."""
        return f"{'https' if self.has_tls else 'http'}://{self._authority(self.port)}"

    def request(self, upgrade: LinkUpgrade) -> bytes:
        lines = (
            f"GET {LINK_PATH} HTTP/1.1",
            f"Host: {self._authority(upgrade.port or self.port)}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {upgrade.key}",
        )
        return "\r\n".join((*lines, "", "")).encode()

    def _authority(self, port: int) -> str:
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def read_upgrade(head: bytes) -> LinkUpgrade:
    """Of a request's head, without its empty line. Raises RefusedUpgrade."""
    try:
        first, *rest = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise RefusedUpgrade(400) from None
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise RefusedUpgrade(403)
    headers: dict[str, list[str]] = {}
    for line in rest:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), []).append(value.strip())
    keys = headers.get("sec-websocket-key", [])
    if headers.get("upgrade", [""])[0].lower() != "websocket" or len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        raise RefusedUpgrade(400)
    return LinkUpgrade(int(found[1]) if found[1] else None, keys[0])


@dataclass(slots=True, kw_only=True, eq=False)
class LinkProxy:
    """Of one lease: listens on its bridge while it is open."""

    gateway: GatewayAddress
    ports: Callable[[], Collection[int]]
    """Of the gateway's processes, as its welcome told this agent: the others that may be dialled."""
    tenant: str
    """The container's address: nobody else is served, also not from the host's other networks."""
    clock: Clock
    _server: asyncio.Server | None = field(default=None, init=False)
    _relays: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _dials_left: float = field(default=DIALS_AT_ONCE, init=False)
    _dials_left_at_s: float = field(default=0.0, init=False)

    async def open(self, host: str, port: int) -> int:
        """Returns the port. Raises OSError."""
        self._dials_left_at_s = self.clock.now_s()
        self._server = await asyncio.start_server(self._on_connection, host, port, limit=HEAD_BYTES_MAX, backlog=16)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends its links as well."""
        if self._server is not None:
            self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        if peer is None or peer[0] != self.tenant or len(self._relays) >= LINKS_MAX:
            writer.transport.abort()
            return
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Without an answer where the gateway is not reached: a node then dials again."""
        try:
            await self._serve(reader, writer)
        except RefusedUpgrade as refused:
            reason = _REASONS[refused.status]
            writer.write(
                f"HTTP/1.1 {refused.status} {reason}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
            )
            _log.info("lease_link_refused", status=refused.status)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError) as error:
            _log.info("lease_link_ended", why=type(error).__name__)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            upgrade = read_upgrade((await reader.readuntil(b"\r\n\r\n"))[:-4])
        port = upgrade.port or self.gateway.port
        if port != self.gateway.port and port not in self.ports():
            raise RefusedUpgrade(403)
        if not self._may_dial():
            raise RefusedUpgrade(429)
        async with asyncio.timeout(HEAD_S):
            context = ssl.create_default_context() if self.gateway.has_tls else None
            upstream = await asyncio.open_connection(self.gateway.host, port, ssl=context, limit=HEAD_BYTES_MAX)
        try:
            await self._switch(upgrade, upstream, (reader, writer))
        finally:
            upstream[1].close()

    async def _switch(
        self,
        upgrade: LinkUpgrade,
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        tenant: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        upstream[1].write(self.gateway.request(upgrade))
        async with asyncio.timeout(HEAD_S):
            head = await upstream[0].readuntil(b"\r\n\r\n")
        if _SWITCHED.match(head) is None:  # what follows would be read as another request
            raise RefusedUpgrade(403)
        tenant[1].write(head)
        async with asyncio.TaskGroup() as tasks:
            relays = [
                tasks.create_task(_pump(tenant[0], upstream[1])),
                tasks.create_task(_pump(upstream[0], tenant[1])),
            ]
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
            for relay in relays:
                relay.cancel()

    def _may_dial(self) -> bool:
        now_s = self.clock.now_s()
        self._dials_left = min(DIALS_AT_ONCE, self._dials_left + (now_s - self._dials_left_at_s) * DIALS_PER_S)
        self._dials_left_at_s = now_s
        if self._dials_left < 1:
            return False
        self._dials_left -= 1
        return True


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either end is closed, or nothing came for long."""
    with suppress(OSError, TimeoutError):
        while True:
            async with asyncio.timeout(IDLE_S):
                data = await reader.read(READ_BYTES)
                if not data:
                    return
                writer.write(data)
                await writer.drain()
