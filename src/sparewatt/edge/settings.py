"""What the HTTP edge must know of how it is reached. Made by the gateway from its own settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    public_url: str | None = None
    """The address that clients and nodes use, where it is not the socket's own."""
    has_tls: bool = False
    """Whether TLS ends in this process."""
    behind_proxy: bool = False
    """Whether a reverse proxy stands in front, which ends TLS and names the client's address."""
    trusted_proxies: str | None = None
    """Networks of that proxy, with commas. None: this machine and private networks."""
    request_log: bool = False
    """Whether every request leaves a line in the log."""
