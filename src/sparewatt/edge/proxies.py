"""A reverse proxy in front: the client's address (X-Forwarded-For), and whether the request came over TLS.

Only a trusted proxy's headers are believed: by default one on this machine or in a private network. A gateway behind a
proxy refuses every other peer, and refuses a request that reached the proxy in plain HTTP, so that the mistake shows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sparewatt.core.errors import NotAllowed, StartupError
from sparewatt.edge.settings import EdgeSettings

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
NEARBY = "127.0.0.0/8, ::1/128, 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7, fe80::/10"
FORWARDED_MAX = 32
"""Addresses of one X-Forwarded-For that are read; real chains have three."""
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Health checks, which a load balancer sends by itself."""


@lru_cache(maxsize=16)
def read_networks(text: str | None) -> Networks:
    """Raises StartupError if the text is no list of networks."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in (text or NEARBY).split(",") if part.strip())
    except ValueError as error:
        raise StartupError(f"--trusted-proxies takes networks like 10.0.0.0/8, 192.0.2.7: {error}.") from None


@lru_cache(maxsize=4096)
def is_trusted(address: str, trusted: str | None) -> bool:
    ip = _read(address)
    return ip is not None and any(ip in network for network in read_networks(trusted))


def client_address(peer: str, forwarded: str, *, trusted: str | None) -> str:
    """The last address of the chain that is none of our proxies."""
    if not is_trusted(peer, trusted):
        return peer
    chain = [part.strip() for part in forwarded.split(",")[-FORWARDED_MAX:] if part.strip()]
    for address in reversed(chain):
        if _read(address) is None:
            break  # entries before this one can be forged
        if not is_trusted(address, trusted):
            return address
    return chain[-1] if chain and _read(chain[-1]) is not None else peer


def forwarded_address(peer: str, headers: Mapping[str, str], settings: EdgeSettings) -> str:
    """The client's address: the socket's peer, or what our own reverse proxy forwarded."""
    if not settings.behind_proxy:
        return peer
    return client_address(peer, headers.get("x-forwarded-for", ""), trusted=settings.trusted_proxies)


def _read(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip


def bypass_error(peer: str, headers: Mapping[str, str], settings: EdgeSettings) -> NotAllowed | None:
    """Why a gateway behind a proxy refuses a request: it bypassed the proxy, or its TLS."""
    public_url = settings.public_url or "its public address"
    if not is_trusted(peer, settings.trusted_proxies):
        return NotAllowed(f"This gateway is reached through its proxy: use {public_url}.")
    if headers.get("x-forwarded-proto", "https").lower() == "http":
        return NotAllowed(f"This request came in the clear, and so did its key: use https, at {public_url}.")
    return None


def refuse_bypass(settings: EdgeSettings) -> list[Middleware]:
    """The middleware of a gateway behind a proxy; an empty list for others."""
    if not settings.behind_proxy:
        return []
    read_networks(settings.trusted_proxies)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        error = bypass_error(request.remote or "", request.headers, settings)
        if error is not None and request.path not in _OPEN_PATHS:
            raise error
        return await handler(request)

    return [guard]
