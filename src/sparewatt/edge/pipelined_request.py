"""A request on a connection, from its head to its reply; several may be queued (HTTP pipelining)."""

from __future__ import annotations

from sparewatt.core.errors import SparewattError
from sparewatt.edge.exchange import Exchange
from sparewatt.edge.request_head import RequestHead
from sparewatt.protocol.openai.json_complexity import JsonComplexityCheck


class PipelinedRequest:
    """Its body is collected here, unless aiohttp takes it as it comes."""

    __slots__ = ("body", "crowd", "exchange", "fault", "head", "is_bridged", "is_complete", "since_s", "size_bytes")

    def __init__(self, head: RequestHead, fault: SparewattError | None, *, since_s: float) -> None:
        self.head = head
        self.fault = fault
        """Why it is refused, once that is known; the first reason found stays."""
        self.since_s = since_s
        self.body: list[bytes] = []
        self.size_bytes = 0
        self.crowd: JsonComplexityCheck | None = None
        """Counts the values of a long body as it comes in."""
        self.is_complete = False
        self.is_bridged = False
        """Whether aiohttp answers it."""
        self.exchange: Exchange | None = None
        """Answers it, if a model does."""

    @property
    def has_begun(self) -> bool:
        """Whether somebody answers it already."""
        return self.exchange is not None or self.is_bridged
