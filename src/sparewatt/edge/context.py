"""One HTTP request as authentication, rate limits and logs see it, whether an `Exchange` or aiohttp serves it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.accounts.rate_limits import RateMeter
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.proxies import client_address
from sparewatt.edge.settings import EdgeSettings

SERVER = "sparewatt"
"""The `server` header: the product, never its version or its libraries."""
_HTTPS_ONLY = "max-age=31536000"
"""HSTS for a year, sent only where TLS ends in this process; a proxy in front sets its own."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RequestContext:
    """Not printable: its headers contain the key."""

    settings: EdgeSettings
    id: str
    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case, or a mapping that ignores case."""
    peer: str
    """The address at the other end of the socket."""
    began_s: float
    meter: RateMeter | None = None
    """The rate limit of the key or session, set by the `Authenticator`."""

    @property
    def address(self) -> str:
        """The client's address: the socket's peer, or what our own reverse proxy forwarded."""
        settings = self.settings
        if not settings.behind_proxy:
            return self.peer
        return client_address(self.peer, self.headers.get("x-forwarded-for", ""), trusted=settings.trusted_proxies)

    def reply_lines(self, now_s: float) -> str:
        """Header lines of every reply: request id, time until the reply began, remaining rate limit.

        They contain nothing that a client sent, so they need no escaping.
        """
        took_ms = (now_s - self.began_s) * 1000
        lines = f"server: {SERVER}\r\nx-request-id: {self.id}\r\nopenai-processing-ms: {took_ms:.0f}\r\n"
        if self.settings.has_tls:
            lines += f"strict-transport-security: {_HTTPS_ONLY}\r\n"
        return lines if self.meter is None else lines + self.meter.header_lines(now_s)

    def reply_headers(self, now_s: float) -> dict[str, str]:
        """The same lines as a mapping, with the CORS headers for a page of another origin."""
        headers = dict(line.split(": ", maxsplit=1) for line in self.reply_lines(now_s).splitlines())
        return headers | cors_headers(self.path, self.headers) if "origin" in self.headers else headers
