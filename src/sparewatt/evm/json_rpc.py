"""JSON-RPC to a chain's node over an injected transport, with bounds and retries.

What comes back is a stranger's word: replies are decoded into given shapes, and anything else is ChainUnavailable. A
call that the chain refuses is ChainRefused, one that a contract reverts ChainReverted with the contract's own reason.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.core.limits import CHAIN_CALL_S, MIB
from sparewatt.evm.revert_reasons import REASON_CHARS_MAX, read_reason, returned_bytes

_T = TypeVar("_T")

REPLY_BYTES_MAX = 16 * MIB
"""A thousand events are about 1 MB. More than this is refused, and the range of a read is halved."""
TRIES = 3
FIRST_PAUSE_S = 0.5
"""Before the second try; twice as long before each further one."""
RETRY_AFTER_S = 2.0
REVERTED = 3
"""The error code of a call that a contract reverted, with what it returned as data."""
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


class RpcTransport(Protocol):
    """Carries the body of one call to a node and back."""

    async def post(self, body: bytes) -> bytes:
        """Raises ChainUnavailable if no answer came, ChainRefused if it was too large."""
        ...


class _RpcError(msgspec.Struct):
    code: int | str = 0
    message: str = ""
    data: Any = None


class _RpcReply(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _RpcError | None = None


@dataclass(slots=True)
class HttpTransport:
    """A node's HTTP endpoint, or with `api_key` a gateway's proxy to one."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = CHAIN_CALL_S
    _session: aiohttp.ClientSession | None = field(default=None, init=False)

    async def post(self, body: bytes) -> bytes:
        try:
            async with self._open().post(self.url, data=body, allow_redirects=False) as reply:
                if reply.status == _TOO_MANY_REQUESTS or reply.status >= _SERVER_ERROR:
                    raise ChainUnavailable(
                        f"The chain's node is busy (HTTP {reply.status}).", retry_after_s=RETRY_AFTER_S
                    )
                return await _read_bounded(reply)
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise ChainUnavailable(
                f"The chain's node does not answer ({type(error).__name__}).", retry_after_s=RETRY_AFTER_S
            ) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"content-type": "application/json"}
            if self.api_key is not None:
                headers["authorization"] = f"Bearer {self.api_key}"
            timeout = aiohttp.ClientTimeout(total=self.timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout, headers=headers)
        return self._session


async def _read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > REPLY_BYTES_MAX:
            raise ChainRefused("The answer of the chain's node is too large.")
    return bytes(body)


@dataclass(slots=True)
class RpcClient:
    transport: RpcTransport
    clock: Clock
    tries: int = TRIES
    _last_id: int = field(default=0, init=False)

    async def call(self, kind: type[_T] | Any, method: str, *params: object) -> _T:
        """The result, decoded as `kind`. Raises ChainUnavailable after the last try, ChainRefused, ChainReverted."""
        self._last_id += 1
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        reply = await self._post(body)
        if reply.error is not None:
            raise _refusal(reply.error)
        try:
            result: _T = msgspec.json.decode(reply.result, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise ChainUnavailable(f"The chain's node gave no valid answer to {method}.") from None
        return result

    async def _post(self, body: bytes) -> _RpcReply:
        for number in range(self.tries - 1):
            try:
                return _decode_reply(await self.transport.post(body))
            except ChainUnavailable:
                await sleep_until(self.clock, self.clock.now_s() + FIRST_PAUSE_S * 2**number)
        return _decode_reply(await self.transport.post(body))


def _decode_reply(body: bytes) -> _RpcReply:
    try:
        return msgspec.json.decode(body, type=_RpcReply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ChainUnavailable("The chain's node gave an answer that is no JSON-RPC.") from None


def _refusal(error: _RpcError) -> ChainReverted | ChainRefused:
    """By the code and what the contract returned, never by the words of the message."""
    returned = returned_bytes(error.data)
    if returned or error.code == REVERTED:
        return ChainReverted(read_reason(returned), data=returned)
    message = " ".join(error.message.split())[:REASON_CHARS_MAX] or "no reason given"
    return ChainRefused(f"The chain's node refused this: {message}.")
