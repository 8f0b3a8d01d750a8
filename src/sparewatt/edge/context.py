"""One HTTP request as authentication, limits and logs see it, whichever code read it from the socket."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.accounts.rate_limits import RateMeter
from sparewatt.edge.cors import cors_headers
from sparewatt.edge.proxies import client_address
from sparewatt.edge.settings import EdgeSettings

SERVER = "sparewatt"
"""The `server` header: the product, never its version or what it is made of."""
_HTTPS_ONLY = "max-age=31536000"
"""HSTS for a year, sent only where TLS ends here; behind a proxy that header is the proxy's to set."""


class RequestContext:
    """Its head, where it came from, when it began, and whose rate limit it uses once that is known."""

    __slots__ = ("began_s", "headers", "id", "meter", "method", "path", "peer", "settings")

    def __init__(
        self,
        settings: EdgeSettings,
        *,
        id_: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        peer: str,
        began_s: float,
    ) -> None:
        self.settings = settings
        self.id = id_
        self.method = method
        self.path = path
        self.headers = headers
        """Names in lower case, or a mapping that ignores case."""
        self.peer = peer
        """The address at the other end of the socket."""
        self.began_s = began_s
        self.meter: RateMeter | None = None
        """The rate limit of the key or session, set by the `Authenticator`."""

    @property
    def address(self) -> str:
        """The client's address: the socket's peer, or what our own reverse proxy says it was."""
        settings = self.settings
        if not settings.behind_proxy:
            return self.peer
        return client_address(self.peer, self.headers.get("x-forwarded-for", ""), trusted=settings.trusted_proxies)

    def reply_lines(self, now_s: float) -> str:
        """Header lines of every reply: its id, the time until it began, what is left of the rate limit.

        They hold no bytes of anybody else, so they need no escaping.
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
