"""Clients that keep every byte they got: what the books say was delivered is set against what these have seen.

Plain sockets, since HTTP clients throw away what came before a connection broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from tests.integration.streaming import prompt_of

Kind = Literal["stream", "whole", "leaver"]
_TOKEN = re.compile(rb'"content":"[^"]')
_MATCH_ID = re.compile(rb"x-sparewatt-match-id: (\S+)", re.IGNORECASE)
ANSWER_S = 60.0
MAX_TOKENS = (4, 12, 40)
LEAVES_AFTER = (0, 1, 5)
"""Tokens after which a client goes away."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to ask, and the keys of those who stay and of those who leave."""

    root_url: str
    model: str
    key: str
    leavers_key: str

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.root_url)
        return parts.hostname or "", parts.port or 80


@dataclass(slots=True)
class Witness:
    """One request and all that came back."""

    number: int
    kind: Kind
    received: bytearray = field(default_factory=bytearray)

    @property
    def max_tokens(self) -> int:
        return MAX_TOKENS[self.number % len(MAX_TOKENS)]

    @property
    def leaves_after(self) -> int | None:
        return LEAVES_AFTER[self.number // 10 % len(LEAVES_AFTER)] if self.kind == "leaver" else None

    @property
    def status(self) -> int:
        return int(self.received[9:12]) if self.received.startswith(b"HTTP/1.1 ") and len(self.received) >= 12 else 0

    @property
    def match_id(self) -> str | None:
        found = _MATCH_ID.search(self._head)
        return found[1].decode() if found else None

    @property
    def tokens(self) -> int:
        """What the client has of its answer."""
        if self.kind == "whole":
            return int(json.loads(self._body)["usage"]["completion_tokens"]) if self.complete else 0
        return len(_TOKEN.findall(self.received))

    @property
    def complete(self) -> bool:
        if self.status != 200:
            return False
        if self.kind != "whole":
            return b"data: [DONE]" in self.received
        with contextlib.suppress(ValueError):
            return "usage" in json.loads(self._body)
        return False

    @property
    def _head(self) -> bytes:
        return bytes(self.received.partition(b"\r\n\r\n")[0])

    @property
    def _body(self) -> bytes:
        return bytes(self.received.partition(b"\r\n\r\n")[2])


def kind_of(number: int) -> Kind:
    """Of ten requests six are streamed, three come whole, and one client leaves."""
    at = number % 10
    return "leaver" if at == 9 else "whole" if at % 3 == 2 else "stream"


async def ask_all(target: Target, *, rate: float, seconds: float) -> list[Witness]:
    """An open loop: each request at its moment, whatever became of those before. Returns when all are over."""
    witnesses = [Witness(number, kind_of(number)) for number in range(int(rate * seconds))]
    start_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for witness in witnesses:
            await asyncio.sleep(max(0.0, start_s + witness.number / rate - time.monotonic()))
            tasks.create_task(_ask(target, witness))
    return witnesses


async def _ask(target: Target, witness: Witness) -> None:
    loop = asyncio.get_running_loop()
    client = _Client(witness, _request(target, witness), over=loop.create_future())
    try:
        transport, _ = await loop.create_connection(lambda: client, *target.address)
    except OSError:
        return  # the gateway is down: nobody has taken the request
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.over
    except TimeoutError:
        transport.abort()


class _Client(asyncio.Protocol):
    def __init__(self, witness: Witness, request: bytes, *, over: asyncio.Future[None]) -> None:
        self._witness = witness
        self._request = request
        self.over = over
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)
        if self._witness.leaves_after == 0:
            asyncio.get_running_loop().call_later(0.02, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._witness.received += data
        bound = self._witness.leaves_after
        if bound is not None and self._witness.tokens >= bound and self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


def _request(target: Target, witness: Witness) -> bytes:
    messages = [{"role": "user", "content": prompt_of(witness.number, words=12)}]
    body = {"model": target.model, "messages": messages, "max_tokens": witness.max_tokens}
    data = json.dumps(body | {"stream": witness.kind != "whole"}).encode()
    key = target.leavers_key if witness.kind == "leaver" else target.key
    host, port = target.address
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}:{port}\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data
