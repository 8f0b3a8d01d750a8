"""The chain, as far as a gateway shows it: GET /v1/chain, and POST /v1/chain/rpc, a door for those behind NAT.

Through the door go reads, logs and signed transactions; never a method that commands the chain's node. Bodies, batches,
replies and each key's rate are bounded. It speaks JSON-RPC as it comes and does not import web3.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from sparewatt.accounts.principal import Principal, Scope, require_scope
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainRateLimited, ChainUnavailable, InvalidField, InvalidJson
from sparewatt.core.limits import (
    CHAIN_CALL_S,
    CHAIN_RPC_BATCH_MAX,
    CHAIN_RPC_BODY_BYTES_MAX,
    CHAIN_RPC_BURST,
    CHAIN_RPC_PER_S,
    CHAIN_RPC_REPLY_BYTES_MAX,
    KEYS_MAX,
)
from sparewatt.gateway.http import admit_rate, identify, json_reply, read_body
from sparewatt.gateway.services import services_of

METHODS = frozenset(
    {
        *("eth_blockNumber", "eth_call", "eth_chainId", "eth_estimateGas", "eth_feeHistory", "eth_gasPrice"),
        *("eth_getBalance", "eth_getBlockByHash", "eth_getBlockByNumber", "eth_getCode", "eth_getLogs"),
        *("eth_getStorageAt", "eth_getTransactionByHash", "eth_getTransactionCount", "eth_getTransactionReceipt"),
        *("eth_maxPriorityFeePerGas", "eth_sendRawTransaction", "eth_syncing", "net_version", "web3_clientVersion"),
    }
)
SCOPES: tuple[Scope, ...] = ("lease", "node", "admin")
_REFUSED = -32601  # JSON-RPC's "method not found"
_MISSING = "This network has no chain. Its operator can give it one: 'sparewatt up' without --no-chain, or CHAIN_URL."


class RpcCall(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"[]")
    id: int | str | None = None
    jsonrpc: str = "2.0"


@dataclass(slots=True)
class Allowance:
    """Calls that each key may still make: a bucket that fills steadily up to a burst."""

    clock: Clock
    share: int = 1
    """Of how many processes this is one."""
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key_id: str, count: int) -> None:
        """Raises ChainRateLimited with how long to wait."""
        now_s = self.clock.now_s()
        left, since_s = self._left.get(key_id, (float(CHAIN_RPC_BURST), now_s))
        left = min(float(CHAIN_RPC_BURST), left + (now_s - since_s) * CHAIN_RPC_PER_S)
        if count > left:
            wait_s = (count - left) / CHAIN_RPC_PER_S
            raise ChainRateLimited(
                f"This key may make {CHAIN_RPC_PER_S:.0f} calls a second to the chain. Slow down.", retry_after_s=wait_s
            )
        if key_id not in self._left and len(self._left) >= KEYS_MAX:
            self._left.clear()
        self._left[key_id] = (left - count * self.share, now_s)


ALLOWANCE = web.AppKey("chain_allowance", Allowance)


async def show_chain(request: web.Request) -> web.StreamResponse:
    """What this network knows of its chain: where it is, the contracts, how far the index and the outbox are."""
    services = services_of(request)
    await _authenticated(request)
    store = services.database.chain
    index = await store.index()
    return json_reply(
        {
            "object": "chain",
            "rpc": "/v1/chain/rpc" if services.settings.chain_url else None,
            "chain_id": index.chain_id if index else None,
            "contracts": dict(index.contracts) if index else {},
            "start_block": index.start_block if index else None,
            "indexed_block": index.block_number if index else None,
            "head_block": index.head_number if index else None,
            "events": await store.count_events() if index else 0,
            "outbox": await store.count_outbox(),
            "note": None if services.settings.chain_url else _MISSING,
        }
    )


async def pass_on(request: web.Request) -> web.StreamResponse:
    """JSON-RPC, one call or a batch. What is not allowed is answered here, the rest by the chain."""
    services = services_of(request)
    who = await _authenticated(request)
    if services.settings.chain_url is None:
        raise ChainUnavailable(_MISSING)
    calls, is_batch = read_calls(await read_body(request, limit=CHAIN_RPC_BODY_BYTES_MAX))
    request.app[ALLOWANCE].take(who.key_id, len(calls))
    allowed = [call for call in calls if call.method in METHODS]
    answers = await _ask(services.settings.chain_url, allowed) if allowed else []
    answers += [_refusal(call) for call in calls if call.method not in METHODS]
    return json_reply(answers if is_batch else answers[0])


async def _authenticated(request: web.Request) -> Principal:
    """Whoever serves or rents, or looks after the account. Raises NotAllowed for a key that only asks for answers."""
    who = await identify(request)
    if not set(SCOPES) & set(who.scopes):
        require_scope(who, SCOPES[-1])
    admit_rate(request)
    return who


def read_calls(body: bytes) -> tuple[list[RpcCall], bool]:
    """The calls, and whether they came as a batch. Raises InvalidJson or InvalidField."""
    is_batch = body.lstrip()[:1] == b"["
    try:
        found = msgspec.json.decode(body, type=list[RpcCall]) if is_batch else [msgspec.json.decode(body, type=RpcCall)]
    except msgspec.ValidationError as error:
        raise InvalidField(f"This is no JSON-RPC call: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("The body is not valid JSON.") from None
    if not 1 <= len(found) <= CHAIN_RPC_BATCH_MAX:
        raise InvalidField(f"A batch has 1 to {CHAIN_RPC_BATCH_MAX} calls.")
    return found, is_batch


def _refusal(call: RpcCall) -> dict[str, Any]:
    message = f"The method {call.method[:60]!r} is not available here."
    return {"jsonrpc": "2.0", "id": call.id, "error": {"code": _REFUSED, "message": message}}


async def _ask(url: str, calls: list[RpcCall]) -> list[Any]:
    """One call goes as it is: not every node takes batches."""
    timeout = aiohttp.ClientTimeout(total=CHAIN_CALL_S)
    headers = {"content-type": "application/json"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=msgspec.json.encode(calls if calls[1:] else calls[0]), headers=headers) as reply,
        ):
            return _read_answers(await _read_bounded(reply))
    except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError):
        raise ChainUnavailable("The network's chain does not answer right now.", retry_after_s=2.0) from None


async def _read_bounded(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > CHAIN_RPC_REPLY_BYTES_MAX:
            raise ChainUnavailable("The answer of the chain is too large. Ask for fewer blocks at once.")
    return bytes(body)


def _read_answers(body: bytes) -> list[Any]:
    """Kept as they came, unread but for their outer shape."""
    is_batch = body.lstrip()[:1] == b"["
    try:
        answers = msgspec.json.decode(body, type=list[dict[str, msgspec.Raw]] if is_batch else dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ChainUnavailable("The network's chain gave an answer that is no JSON-RPC.") from None
    return list(answers) if isinstance(answers, list) else [answers]
