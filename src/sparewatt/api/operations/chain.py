"""GET /v1/chain: the state of the network's chain. POST /v1/chain/rpc: a JSON-RPC proxy to it, for nodes behind NAT.

The proxy lets reads, logs and signed transactions pass, and no method that controls the chain's node. Bodies, batches,
replies and the rate of each key are bounded. Nothing here imports web3.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp
import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal, Scope, require_scope
from sparewatt.api.endpoint import RequestLimiter, endpoint
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainRateLimited, ChainUnavailable, InvalidField, InvalidJson, NoChain
from sparewatt.core.limits import CHAIN_CALL_S, KEYS_MAX, KIB, MIB
from sparewatt.edge.bodies import read_body
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.operations import ChainStatus, JsonRpcCall, JsonRpcError, JsonRpcReply
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.payouts import RootStatus

RPC_PATH = "/v1/chain/rpc"
SCOPES: tuple[Scope, ...] = ("lease", "node", "admin")
"""Any of them suffices."""
CHAIN_RPC_BODY_BYTES_MAX = 512 * KIB
"""One raw transaction is at most 256 kB of hex digits."""
CHAIN_RPC_BATCH_MAX = 50
"""Calls in one body; clients batch reads by the dozen."""
CHAIN_RPC_REPLY_BYTES_MAX = 16 * MIB
"""A thousand events are about 1 MB."""
CHAIN_RPC_PER_S = 20.0
"""Calls per second of one key in the long run: a follower needs two."""
CHAIN_RPC_BURST = 200
"""Calls of one key at once after a pause: a node that catches up."""
_ALL_OF_IT = "The market of leases, with deposits and payouts,"

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


class ChainProgress(Protocol):
    """How far index and outbox are. Implemented by ChainStore."""

    async def index(self) -> ChainIndexRow | None: ...

    async def problem(self) -> str | None: ...

    async def count_events(self) -> int: ...

    async def count_outbox(self) -> dict[str, int]: ...

    async def count_outbox_by_sender(self) -> dict[str, int]: ...


class RootProgress(Protocol):
    """Implemented by PayoutStore."""

    async def root_status(self) -> RootStatus: ...


def describe_roots(status: RootStatus) -> str | None:
    """What an operator has to know or decide; the most urgent first."""
    if status.struck is not None:
        return (
            f"The guardian struck root {status.struck}: it pays nothing. Look into it, then 'sparewatt payouts decide "
            f"{status.struck}'."
        )
    if status.is_stopped:
        return "The guardian stopped the pool: no root is posted until it is lifted."
    if status.delayed is not None:
        ripe = dt.datetime.fromtimestamp(status.ripe_unix_s or 0, dt.UTC)
        return f"Root {status.delayed} can be claimed from {ripe:%Y-%m-%d %H:%M} UTC on."
    return None


@dataclass(slots=True)
class RpcRateLimit:
    """A token bucket per API key: it refills at a steady rate up to a burst."""

    clock: Clock
    process_count: int = 1
    """Of this gateway; each process grants its share of the rate."""
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    """By key: the calls left, and when that was."""

    def take(self, key_id: str, count: int) -> None:
        """Raises ChainRateLimited with how long to wait."""
        now_s = self.clock.now_s()
        left, since_s = self._buckets.get(key_id, (float(CHAIN_RPC_BURST), now_s))
        left = min(float(CHAIN_RPC_BURST), left + (now_s - since_s) * CHAIN_RPC_PER_S)
        if count > left:
            wait_s = (count - left) / CHAIN_RPC_PER_S
            raise ChainRateLimited(
                f"This key may make {CHAIN_RPC_PER_S:.0f} calls a second to the chain. Slow down.", retry_after_s=wait_s
            )
        if key_id not in self._buckets and len(self._buckets) >= KEYS_MAX:
            self._buckets.clear()
        self._buckets[key_id] = (left - count * self.process_count, now_s)


@dataclass(slots=True, kw_only=True)
class ChainEndpoints:
    limiter: RequestLimiter
    store: ChainProgress
    payouts: RootProgress
    chain_url: str | None
    """JSON-RPC of the chain's node; None if there is no chain."""
    rate_limit: RpcRateLimit
    """Of calls, besides the limit of requests."""

    @endpoint("GET /v1/chain", access="identified")
    async def show_chain(self, request: web.Request, principal: Principal) -> ChainStatus:
        """Show the chain: where it is, its contracts, how far the index and the outbox are."""
        self._admit(request, principal)
        index = await self.store.index()
        return ChainStatus(
            rpc=RPC_PATH if self.chain_url else None,
            chain_id=index.chain_id if index else None,
            contracts=dict(index.contracts) if index else {},
            start_block=index.start_block if index else None,
            indexed_block=index.block_number if index else None,
            head_block=index.head_number if index else None,
            events=await self.store.count_events() if index else 0,
            outbox=await self.store.count_outbox(),
            senders=await self.store.count_outbox_by_sender(),
            payout_roots=describe_roots(await self.payouts.root_status()) if index else None,
            note=await self.store.problem() if self.chain_url else NoChain(_ALL_OF_IT).message,
        )

    @endpoint(f"POST {RPC_PATH}", access="identified", body=JsonRpcCall, reply=JsonRpcReply | list[JsonRpcReply])
    async def call_chain(
        self, request: web.Request, principal: Principal
    ) -> ForwardedReply | JsonRpcReply | list[ForwardedReply | JsonRpcReply]:
        """Call the chain's node by JSON-RPC: one call, or a list of them as a batch.

        A method that is not on the allow-list gets JSON-RPC's error -32601 from the gateway.
        """
        self._admit(request, principal)
        if self.chain_url is None:
            raise NoChain("The JSON-RPC of the network's chain")
        calls, is_batch = read_calls(await read_body(request, limit=CHAIN_RPC_BODY_BYTES_MAX))
        self.rate_limit.take(principal.key_id, len(calls))
        replies = await forward(calls, chain_url=self.chain_url)
        return replies if is_batch else replies[0]

    def _admit(self, request: web.Request, principal: Principal) -> None:
        """Providers, renters and administrators. Raises NotAllowed for a key with the scope inference alone."""
        if not set(SCOPES) & set(principal.scopes):
            require_scope(principal, SCOPES[-1])
        self.limiter.charge(context_of(request))


# the proxy


def read_calls(body: bytes) -> tuple[list[JsonRpcCall], bool]:
    """The calls, and whether they came as a batch. Raises InvalidJson or InvalidField."""
    try:
        decoded: JsonRpcCall | list[JsonRpcCall] = msgspec.json.decode(body, type=JsonRpcCall | list[JsonRpcCall])
    except msgspec.ValidationError as error:
        raise InvalidField(f"This is no JSON-RPC call: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("The body is not valid JSON.") from None
    calls = decoded if isinstance(decoded, list) else [decoded]
    if not 1 <= len(calls) <= CHAIN_RPC_BATCH_MAX:
        raise InvalidField(f"A batch has 1 to {CHAIN_RPC_BATCH_MAX} calls.")
    return calls, isinstance(decoded, list)


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
        decoded: ForwardedReply | list[ForwardedReply] = msgspec.json.decode(
            body, type=ForwardedReply | list[ForwardedReply]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ChainUnavailable("The network's chain gave an answer that is no JSON-RPC.") from None
    return decoded if isinstance(decoded, list) else [decoded]
