"""How long the server waits for clients."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.limits import CLIENT_BODY_S, CLIENT_HEAD_S, CLIENT_IDLE_S, CLIENT_WRITE_S, KEEP_ALIVE_S


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    head_s: float = CLIENT_HEAD_S
    body_s: float = CLIENT_BODY_S
    idle_s: float = CLIENT_IDLE_S
    write_s: float = CLIENT_WRITE_S
    """For a client that reads nothing of what it is sent."""
    keep_alive_s: float = KEEP_ALIVE_S
    """After so much silence a stream gets its head, or an SSE comment."""
    check_s: float = 0.5
    """Between two checks of all connections: no timeout is more punctual than this."""
