"""Settings of the HTTP edge: how clients reach it, and how long it waits for them. Plain values, set by `gateway/`."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.limits import CLIENT_WRITE_S, KEEP_ALIVE_S

CLIENT_BODY_S = 120.0
"""For the whole body: 20 MiB at 1.4 Mbit/s. A slower client would occupy memory for nothing."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    public_url: str | None = None
    """The address that clients and nodes use, where it is not the socket's own."""
    has_tls: bool = False
    """Whether TLS ends in this process."""
    behind_proxy: bool = False
    """Whether a reverse proxy ends TLS and forwards the client's address."""
    trusted_proxies: str | None = None
    """Networks of that proxy, separated by commas. None: this machine and private networks."""
    sites_host: str | None = None
    """Names below this one are public sites of leases, and nothing else. None: there are none."""
    request_log: bool = False
    """Whether every finished request is logged."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    head_s: float = 20.0
    """For the head of a request, which is a few hundred bytes."""
    body_s: float = CLIENT_BODY_S
    idle_s: float = 75.0
    """Between two requests: a little longer than clients and proxies keep a connection open."""
    write_s: float = CLIENT_WRITE_S
    """For a client that reads nothing of what it is sent."""
    keep_alive_s: float = KEEP_ALIVE_S
    """After so long without data a stream gets its head, or an SSE comment as a keep-alive."""
    check_s: float = 0.5
    """Between two checks of all connections: the precision of every timeout above."""
