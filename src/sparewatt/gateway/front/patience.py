"""How long is waited for clients."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.limits import CLIENT_BODY_S, CLIENT_HEAD_S, CLIENT_IDLE_S, CLIENT_WRITE_S, KEEP_ALIVE_S


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds."""

    head_s: float = CLIENT_HEAD_S
    body_s: float = CLIENT_BODY_S
    idle_s: float = CLIENT_IDLE_S
    write_s: float = CLIENT_WRITE_S
    keep_alive_s: float = KEEP_ALIVE_S
    """After so much silence a stream gets its head, or a comment."""
    look_s: float = 0.5
    """How often all of them are looked at; nothing is more punctual than this."""
