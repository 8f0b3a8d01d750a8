"""The JSON-RPC proxy to the network's chain: allow-list, bounds, rate limit, forwarding. It does not import web3.

It lets reads, logs and signed transactions pass, and no method that controls the chain's node. Bodies, batches, replies
and the rate of each key are bounded.
"""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainRateLimited, ChainUnavailable, InvalidField, InvalidJson
from sparewatt.core.limits import (
    CHAIN_CALL_S,
    CHAIN_RPC_BATCH_MAX,
    CHAIN_RPC_BURST,
    CHAIN_RPC_PER_S,
    CHAIN_RPC_REPLY_BYTES_MAX,
    KEYS_MAX,
)
from sparewatt.protocol.api.operations import JsonRpcCall, JsonRpcError, JsonRpcReply

ALLOWED_METHODS = frozenset(
    {
        *("eth_blockNumber", "eth_call", "eth_chainId", "eth_estimateGas", "eth_feeHistory", "eth_gasPrice"),
        *("eth_getBalance", "eth_getBlockByHash", "eth_getBlockByNumber", "eth_getCode", "eth_getLogs"),
        *("eth_getStorageAt", "eth_getTransactionByHash", "eth_getTransactionCount", "eth_getTransactionReceipt"),
        *("eth_maxPriorityFeePerGas", "eth_sendRawTransaction", "eth_syncing", "net_version", "web3_clientVersion"),
    }
)
METHOD_NOT_FOUND = -32601
"""JSON-RPC's error code."""

ForwardedReply = dict[str, msgspec.Raw]
"""A reply of the chain's node, normally a `JsonRpcReply`. Only its outer shape is decoded; values stay bytes."""


class RpcRateLimit:
    """A token bucket per API key: it refills at a steady rate up to a burst."""

    def __init__(self, clock: Clock, *, process_count: int = 1) -> None:
        """`process_count`: processes of this gateway, each of which grants its share of the rate."""
        self._clock = clock
        self._process_count = process_count
        self._buckets: dict[str, tuple[float, float]] = {}
        """By key: the calls left, and when that was."""

    def take(self, key_id: str, count: int) -> None:
        """Raises ChainRateLimited with how long to wait."""
        now_s = self._clock.now_s()
        left, since_s = self._buckets.get(key_id, (float(CHAIN_RPC_BURST), now_s))
        left = min(float(CHAIN_RPC_BURST), left + (now_s - since_s) * CHAIN_RPC_PER_S)
        if count > left:
            wait_s = (count - left) / CHAIN_RPC_PER_S
            raise ChainRateLimited(
                f"This key may make {CHAIN_RPC_PER_S:.0f} calls a second to the chain. Slow down.", retry_after_s=wait_s
            )
        if key_id not in self._buckets and len(self._buckets) >= KEYS_MAX:
            self._buckets.clear()
        self._buckets[key_id] = (left - count * self._process_count, now_s)


def read_calls(body: bytes) -> tuple[list[JsonRpcCall], bool]:
    """The calls, and whether they came as a batch. Raises InvalidJson or InvalidField."""
    is_batch = _is_list(body)
    try:
        calls = (
            msgspec.json.decode(body, type=list[JsonRpcCall])
            if is_batch
            else [msgspec.json.decode(body, type=JsonRpcCall)]
        )
    except msgspec.ValidationError as error:
        raise InvalidField(f"This is no JSON-RPC call: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("The body is not valid JSON.") from None
    if not 1 <= len(calls) <= CHAIN_RPC_BATCH_MAX:
        raise InvalidField(f"A batch has 1 to {CHAIN_RPC_BATCH_MAX} calls.")
    return calls, is_batch


async def forward(calls: list[JsonRpcCall], *, chain_url: str) -> list[ForwardedReply | JsonRpcReply]:
    """Forward what is allowed to the chain's node, and refuse the rest; refusals come last. Raises ChainUnavailable."""
    allowed = [call for call in calls if call.method in ALLOWED_METHODS]
    forwarded = await _post(chain_url, allowed) if allowed else []
    return [*forwarded, *(_refusal_of(call) for call in calls if call.method not in ALLOWED_METHODS)]


def _refusal_of(call: JsonRpcCall) -> JsonRpcReply:
    message = f"The method {call.method[:60]!r} is not available here."
    return JsonRpcReply(id=call.id, error=JsonRpcError(code=METHOD_NOT_FOUND, message=message))


async def _post(url: str, calls: list[JsonRpcCall]) -> list[ForwardedReply]:
    # A single call is sent outside of a list: not every node accepts batches.
    body = msgspec.json.encode(calls if len(calls) > 1 else calls[0])
    timeout = aiohttp.ClientTimeout(total=CHAIN_CALL_S)
    headers = {"content-type": "application/json"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=headers) as reply,
        ):
            return _decode_replies(await _read_bounded(reply))
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError):
        raise ChainUnavailable("The network's chain does not answer right now.", retry_after_s=2.0) from None


async def _read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > CHAIN_RPC_REPLY_BYTES_MAX:
            raise ChainUnavailable("The answer of the chain is too large. Ask for fewer blocks at once.")
    return bytes(body)


def _decode_replies(body: bytes) -> list[ForwardedReply]:
    try:
        if _is_list(body):
            return msgspec.json.decode(body, type=list[ForwardedReply])
        return [msgspec.json.decode(body, type=ForwardedReply)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ChainUnavailable("The network's chain gave an answer that is no JSON-RPC.") from None


def _is_list(body: bytes) -> bool:
    return body.lstrip()[:1] == b"["
