"""GET /v1/chain: the state of the network's chain. POST /v1/chain/rpc: a JSON-RPC proxy to it, for nodes behind NAT."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from sparewatt.accounts.principal import Principal, Scope, require_scope
from sparewatt.api.endpoint import get, post
from sparewatt.api.operations.rpc_proxy import ForwardedReply, RpcRateLimit, forward, read_calls
from sparewatt.core.clock import Clock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.core.limits import CHAIN_RPC_BODY_BYTES_MAX
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.bodies import read_body
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.operations import ChainStatus, JsonRpcCall, JsonRpcReply
from sparewatt.store.chain import ChainIndexRow

RPC_PATH = "/v1/chain/rpc"
SCOPES: tuple[Scope, ...] = ("lease", "node", "admin")
"""Any of them suffices."""
_NO_CHAIN = "This network has no chain. Its operator can give it one: 'sparewatt up' without --no-chain, or CHAIN_URL."


class ChainProgress(Protocol):
    """How far index and outbox are. Implemented by ChainStore."""

    async def index(self) -> ChainIndexRow | None: ...

    async def count_events(self) -> int: ...

    async def count_outbox(self) -> dict[str, int]: ...


class ChainEndpoints:
    def __init__(
        self,
        *,
        auth: Authenticator,
        store: ChainProgress,
        chain_url: str | None,
        clock: Clock,
        process_count: int,
    ) -> None:
        """`chain_url`: JSON-RPC of the chain's node; None if there is no chain. `process_count`: of this gateway."""
        self._auth = auth
        self._store = store
        self._chain_url = chain_url
        self._rate_limit = RpcRateLimit(clock, process_count=process_count)

    @get("/v1/chain")
    async def show_chain(self, request: web.Request) -> ChainStatus:
        """Show the chain: where it is, its contracts, how far the index and the outbox are."""
        await self._authenticate(request)
        index = await self._store.index()
        return ChainStatus(
            rpc=RPC_PATH if self._chain_url else None,
            chain_id=index.chain_id if index else None,
            contracts=dict(index.contracts) if index else {},
            start_block=index.start_block if index else None,
            indexed_block=index.block_number if index else None,
            head_block=index.head_number if index else None,
            events=await self._store.count_events() if index else 0,
            outbox=await self._store.count_outbox(),
            note=None if self._chain_url else _NO_CHAIN,
        )

    @post(RPC_PATH, body=JsonRpcCall, reply=JsonRpcReply | list[JsonRpcReply])
    async def call_chain(
        self, request: web.Request
    ) -> ForwardedReply | JsonRpcReply | list[ForwardedReply | JsonRpcReply]:
        """Call the chain's node by JSON-RPC: one call, or a list of them as a batch.

        A method that is not on the allow-list gets JSON-RPC's error -32601 from the gateway.
        """
        principal = await self._authenticate(request)
        if self._chain_url is None:
            raise ChainUnavailable(_NO_CHAIN)
        calls, is_batch = read_calls(await read_body(request, limit=CHAIN_RPC_BODY_BYTES_MAX))
        self._rate_limit.take(principal.key_id, len(calls))
        replies = await forward(calls, chain_url=self._chain_url)
        return replies if is_batch else replies[0]

    async def _authenticate(self, request: web.Request) -> Principal:
        """Admit providers, renters and administrators. Raises NotAllowed for a key with the scope inference alone."""
        context = context_of(request)
        principal = await self._auth.identify(context)
        if not set(SCOPES) & set(principal.scopes):
            require_scope(principal, SCOPES[-1])
        self._auth.charge(context)
        return principal
