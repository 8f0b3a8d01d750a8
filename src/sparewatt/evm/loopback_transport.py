"""JSON-RPC to a node on this machine over one kept HTTP/1.1 connection, for a process that asks several times a second.

It costs less than half of what a full HTTP client does, and knows no TLS, redirects or chunks: a node that answers
otherwise is not on loopback, and `HttpTransport` is for those.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sparewatt.core.errors import ChainRefused, ChainUnavailable
from sparewatt.core.limits import CHAIN_CALL_S
from sparewatt.evm.json_rpc import REPLY_BYTES_MAX, RETRY_AFTER_S

_OK = b"200"
_LENGTH = b"content-length:"
_CLOSE = b"connection: close"


@dataclass(slots=True)
class LoopbackTransport:
    """One request at a time; more wait for their turn."""

    url: str
    timeout_s: float = CHAIN_CALL_S
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def post(self, body: bytes) -> bytes:
        """As `RpcTransport` says."""
        async with self._lock:
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await self._ask(body)
            except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
                await self._drop()
                raise ChainUnavailable(
                    f"The chain's node does not answer ({type(error).__name__}).", retry_after_s=RETRY_AFTER_S
                ) from None
            except BaseException:
                await self._drop()  # a reply that is still to come must not be taken for the next one's
                raise

    async def close(self) -> None:
        await self._drop()

    async def _ask(self, body: bytes) -> bytes:
        parts = urlsplit(self.url)
        reader, writer = self._streams or await self._connect(parts.hostname or "", parts.port or 80)
        head = f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        status, fields = answer.split(b"\r\n", 1)
        length = int(fields.partition(_LENGTH)[2].partition(b"\r\n")[0])
        if length > REPLY_BYTES_MAX:
            raise ChainRefused("The answer of the chain's node is too large.")
        reply = await reader.readexactly(length)
        if _CLOSE in fields:
            await self._drop()
        if _OK not in status.split(b" "):
            raise ValueError("no success")
        return reply

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._streams = await asyncio.open_connection(host, port)
        return self._streams

    async def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
