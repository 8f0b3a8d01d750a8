"""HTTP to hosts that a stranger named, such as the URLs that validators write to the chain. A guard against SSRF.

HTTPS goes to public addresses only, plain HTTP to this machine only, and to this machine only where the caller allows
it. A name is resolved here and every address is checked, so a name that changes its address a moment later (DNS
rebinding) gains nothing. Redirects are not followed; time, size and the number of connections are bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sparewatt.core.address_rules import is_public, names_loopback

DEFAULT_PORTS = {"http": 80, "https": 443}
ADDRESSES_MAX = 16
"""Of one name."""
URL_CHARS_MAX = 300
CONNECT_S = 3.0
CONNECTIONS_MAX = 256
KEEP_ALIVE_S = 60.0
"""A heartbeat every 15 seconds must not cost a handshake."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host. Raises OSError."""


class NoAnswer(Exception):
    """The host is not dialled, or does not answer as asked. Its text is for a person, and names nothing that came."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DialRules:
    """Which addresses are dialled. `may_connect` judges an address of another machine and a port."""

    allows_loopback: bool
    may_connect: Callable[[str, int], bool] = lambda address, _: is_public(address)

    def may_dial(self, address: str, port: int) -> bool:
        return self.allows_loopback if names_loopback(address) else self.may_connect(address, port)

    def refusal_of(self, url: str) -> str | None:
        """Why this URL is not dialled, in words; None if it may be. Names are checked when they are resolved."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return "its URL cannot be read"
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        is_plain = is_plain and len(url) <= URL_CHARS_MAX and not any(char.isspace() for char in url)
        if parts.scheme not in DEFAULT_PORTS or not host or not is_plain:
            return "its URL is no plain http or https address"
        if names_loopback(host):
            return None if self.allows_loopback else "its URL leads to this machine"
        if parts.scheme != "https":
            return "its URL has no TLS, which is for this machine only"
        if _is_literal(host) and not self.may_dial(host, port or DEFAULT_PORTS[parts.scheme]):
            return "its address is not a public one"
        return None


PUBLIC_ONLY = DialRules(allows_loopback=False)
PRIVATE_TOO = DialRules(allows_loopback=True, may_connect=lambda *_: True)
"""For a network whose members are all on one machine or in one local network."""


def resolved(host: str, port: int, addresses: Iterable[str]) -> list[ResolveResult]:
    return [
        ResolveResult(
            hostname=host,
            host=address,
            port=port,
            family=socket.AF_INET6 if ":" in address else socket.AF_INET,
            proto=0,
            flags=socket.AI_NUMERICHOST,
        )
        for address in addresses
    ]


class CheckedResolver(AbstractResolver):
    """Gives the addresses of a name only if all of them may be dialled. `localhost` is this machine, unasked."""

    def __init__(self, rules: DialRules, *, resolve: Resolve = resolve_by_system) -> None:
        self._rules, self._resolve = rules, resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family  # of the two, whichever was found
        found = ["127.0.0.1"] if host == "localhost" else list(await self._resolve(host, port))[:ADDRESSES_MAX]
        if not found or not all(self._rules.may_dial(address, port) for address in found):
            raise OSError(f"{host} has no address that may be dialled")
        return resolved(host, port, found)

    async def close(self) -> None:
        return None


class StrangerClient:
    """One session with kept connections for all hosts. It opens with the first call: it needs a running loop."""

    def __init__(self, rules: DialRules, *, per_host_max: int = 0, resolve: Resolve = resolve_by_system) -> None:
        """`per_host_max` connections to one host at once; 0: as many as to all together."""
        self._rules, self._resolve, self._per_host_max = rules, resolve, per_host_max
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, path: str, *, within_s: float, bytes_max: int) -> bytes:
        """The body of a 200, as it came. Raises NoAnswer."""
        return await self._call("GET", url, path, body=None, within_s=within_s, bytes_max=bytes_max)

    async def post(
        self,
        url: str,
        path: str,
        body: bytes,
        *,
        within_s: float,
        bytes_max: int,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """As `get`."""
        return await self._call("POST", url, path, body=body, within_s=within_s, bytes_max=bytes_max, headers=headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(
        self,
        method: str,
        url: str,
        path: str,
        *,
        body: bytes | None,
        within_s: float,
        bytes_max: int,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        if why := self._rules.refusal_of(url):
            raise NoAnswer(f"it is not dialled: {why}")
        try:
            async with (
                asyncio.timeout(within_s),
                self._open_session().request(
                    method, url.rstrip("/") + path, data=body, headers=headers, allow_redirects=False
                ) as reply,
            ):
                if reply.status != 200:
                    raise NoAnswer(f"it answered {reply.status}")
                return await _read(reply, bytes_max)
        except TimeoutError:
            raise NoAnswer("it did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError):  # the last: a name with a label of 64 letters
            raise NoAnswer("it cannot be reached") from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=CheckedResolver(self._rules, resolve=self._resolve),
                    limit=CONNECTIONS_MAX,
                    limit_per_host=self._per_host_max,
                    keepalive_timeout=KEEP_ALIVE_S,
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                headers={"content-type": "application/json", "accept-encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


async def _read(reply: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    content = bytearray()
    async for chunk in reply.content.iter_any():
        content += chunk
        if len(content) > bytes_max:
            reply.close()
            raise NoAnswer(f"its answer is over {bytes_max:,} bytes")
    return bytes(content)
