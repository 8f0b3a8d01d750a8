"""What accounts ask of the chain: written by gateways, turned into transactions by the chain's process, then ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import asyncpg

from sparewatt.core.ids import AccountId
from sparewatt.core.limits import CHAIN_REQUESTS_OPEN_MAX
from sparewatt.store.pool import Pool
from sparewatt.store.queries import sql


class RequestKind(Enum):
    DEPOSIT = "deposit"
    CLAIM = "claim"


class RequestState(Enum):
    """`DECIDED`: its transactions are in the outbox. The last two are ends."""

    ASKED = "asked"
    DECIDED = "decided"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewRequest:
    """`id` names it once and for all. `epoch` is the batch that a claim is proven by."""

    id: str
    kind: RequestKind
    account_id: AccountId
    address: str
    micro: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class RequestRow(NewRequest):
    state: RequestState = RequestState.ASKED
    reason: str | None = None
    tx: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxCall:
    """A transaction of a request, before it is in the outbox."""

    business_id: str
    recipient: str
    data: bytes


class RequestStore:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def ask(self, new: NewRequest) -> bool:
        """False, and nothing changes, if it was asked before or the account has too many open."""
        values = (new.id, new.kind.value, new.account_id, new.address, new.micro, new.epoch)
        return await self._pool.value("ask_of_chain", *values, CHAIN_REQUESTS_OPEN_MAX) is not None

    async def find(self, request_id: str) -> RequestRow | None:
        row = await self._pool.row("find_chain_request", request_id)
        return _request_row(row) if row else None

    async def asked(self, *, limit: int) -> list[RequestRow]:
        """The oldest of each address that has none under way."""
        return [_request_row(row) for row in await self._pool.rows("chain_requests_asked", limit)]

    async def decided(self, *, limit: int) -> list[RequestRow]:
        return [_request_row(row) for row in await self._pool.rows("chain_requests_decided", limit)]

    async def decide(self, request_id: str, *, sender: str, calls: Sequence[OutboxCall]) -> bool:
        """Its transactions into the outbox and the mark that they are, or neither. False if it was done before."""
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("note_request_decided"), request_id) is None:
                return False
            for call in calls:
                values = (call.business_id, sender, call.recipient, call.data, None)
                await connection.execute(sql("decide_outbox"), *values)
        return True

    async def end(
        self, request_id: str, state: RequestState, *, reason: str | None = None, tx: str | None = None
    ) -> None:
        await self._pool.do("end_chain_request", request_id, state.value, reason, tx)


def _request_row(row: asyncpg.Record) -> RequestRow:
    kinds = {"kind": RequestKind(row["kind"]), "state": RequestState(row["state"])}
    return RequestRow(**(dict(row.items()) | kinds))
