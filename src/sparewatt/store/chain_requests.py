"""What accounts ask of the chain: written by gateways, turned into transactions by the chain's process, then ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import asyncpg

from sparewatt.core.ids import AccountId
from sparewatt.core.limits import CHAIN_REQUESTS_OPEN_MAX
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.queries import sql


class ChainRequestKind(Enum):
    DEPOSIT = "deposit"
    CLAIM = "claim"


class ChainRequestState(Enum):
    """`DECIDED`: its transactions are in the outbox. The last two are ends."""

    ASKED = "asked"
    DECIDED = "decided"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewChainRequest:
    """`id` names it once and for all. `epoch` is the batch that a claim is proven by."""

    id: str
    kind: ChainRequestKind
    account_id: AccountId
    address: str
    micro: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ChainRequestRow(NewChainRequest):
    state: ChainRequestState = ChainRequestState.ASKED
    reason: str | None = None
    tx: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxCall:
    """A transaction of a request, before it is in the outbox."""

    business_id: str
    recipient: str
    data: bytes


class ChainRequestStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def insert(self, new: NewChainRequest) -> bool:
        """False, and nothing changes, if it was asked before or the account has too many open."""
        values = (new.id, new.kind.value, new.account_id, new.address, new.micro, new.epoch)
        return await self._pool.value("ask_of_chain", *values, CHAIN_REQUESTS_OPEN_MAX) is not None

    async def find(self, request_id: str) -> ChainRequestRow | None:
        row = await self._pool.row("find_chain_request", request_id)
        return _request_row(row) if row else None

    async def list_asked(self, *, limit: int) -> list[ChainRequestRow]:
        """The oldest of each address that has none under way."""
        return [_request_row(row) for row in await self._pool.rows("chain_requests_asked", limit)]

    async def list_decided(self, *, limit: int) -> list[ChainRequestRow]:
        return [_request_row(row) for row in await self._pool.rows("chain_requests_decided", limit)]

    async def enqueue_calls(self, request_id: str, *, sender: str, calls: Sequence[OutboxCall]) -> bool:
        """Its transactions into the outbox and the mark that they are, or neither. False if it was done before."""
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("note_request_decided"), request_id) is None:
                return False
            for call in calls:
                values = (call.business_id, sender, call.recipient, call.data, None)
                await connection.execute(sql("decide_outbox"), *values)
        return True

    async def finish(
        self, request_id: str, state: ChainRequestState, *, reason: str | None = None, tx: str | None = None
    ) -> None:
        await self._pool.execute("end_chain_request", request_id, state.value, reason, tx)


def _request_row(row: asyncpg.Record) -> ChainRequestRow:
    kinds = {"kind": ChainRequestKind(row["kind"]), "state": ChainRequestState(row["state"])}
    return ChainRequestRow(**(dict(row.items()) | kinds))
