"""A closed-loop load generator: each keep-alive connection sends its next chat as soon as its answer is complete.

It uses plain sockets and parses as little as possible, so that it takes little processor time from what it measures.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

ANSWER_S = 30.0
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Loop:
    root_url: str
    api_key: str
    model: str
    connections: int
    answer_tokens: int

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.root_url)
        return parts.hostname or "", parts.port or 80

    def request(self, number: int) -> bytes:
        """Every other connection requests streams."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": f"Connection {number} would like to hear a few words."}],
            "max_tokens": self.answer_tokens,
            "stream": number % 2 == 1,
        }
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {':'.join(map(str, self.address))}\r\n"
            f"authorization: Bearer {self.api_key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data


@dataclass(slots=True)
class Counts:
    answered: int = 0
    failed: int = 0


async def run_loop(loop: Loop, *, seconds: float) -> Counts:
    """Send requests for `seconds`, then wait for open answers. All but complete 200s count as failed."""
    counts = Counts()
    ends_s = asyncio.get_running_loop().time() + seconds
    async with asyncio.TaskGroup() as tasks:
        for number in range(loop.connections):
            tasks.create_task(_run_connection(loop, number, counts, ends_s))
    return counts


async def _run_connection(loop: Loop, number: int, counts: Counts, ends_s: float) -> None:
    running = asyncio.get_running_loop()
    over: asyncio.Future[None] = running.create_future()
    client = _Client(loop.request(number), counts, ends_s=ends_s, over=over)
    await running.create_connection(lambda: client, *loop.address)
    async with asyncio.timeout_at(ends_s + ANSWER_S):
        await over


class _Client(asyncio.Protocol):
    """One connection. It has callbacks only: a task per answer would cost as much as the answer."""

    def __init__(self, request: bytes, counts: Counts, *, ends_s: float, over: asyncio.Future[None]) -> None:
        self._request = request
        self._counts = counts
        self._ends_s = ends_s
        self._over = over
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if _is_whole(self._received):
            self._next()

    def connection_lost(self, _: Exception | None) -> None:
        if not self._over.done():
            self._counts.failed += 1
            self._over.set_result(None)

    def _next(self) -> None:
        is_good = self._received.startswith(b"HTTP/1.1 200") and b'"error"' not in self._received
        self._counts.answered += is_good
        self._counts.failed += not is_good
        self._received = b""
        if self._transport is None or self._over.done():
            return
        if asyncio.get_running_loop().time() < self._ends_s:
            self._transport.write(self._request)
        else:
            self._over.set_result(None)
            self._transport.close()


def _is_whole(received: bytes) -> bool:
    head, ended, body = received.partition(b"\r\n\r\n")
    if not ended:
        return False
    length = _LENGTH.search(head)
    return received.endswith(_LAST_CHUNK) if length is None else len(body) >= int(length[1])
