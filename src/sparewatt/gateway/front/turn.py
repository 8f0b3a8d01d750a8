"""One request on its way in."""

from __future__ import annotations

from sparewatt.core.errors import SparewattError
from sparewatt.gateway.front.exchange import Exchange
from sparewatt.gateway.front.head import Head
from sparewatt.protocol.crowding import Crowd


class Turn:
    """Its body is collected, unless a guest takes it as it comes."""

    __slots__ = ("body", "crowd", "exchange", "fault", "head", "is_complete", "is_guests", "since_s", "size_bytes")

    def __init__(self, head: Head, fault: SparewattError | None, *, since_s: float) -> None:
        self.head = head
        self.fault = fault
        self.since_s = since_s
        self.body: list[bytes] = []
        self.size_bytes = 0
        self.crowd: Crowd | None = None
        """Of a body that is long enough for one."""
        self.is_complete = False
        self.is_guests = False
        self.exchange: Exchange | None = None
