"""Chain requests: deposits and claims of accounts. Gateways insert them, the chain's process sends and finishes them.

A request and its rows of the outbox are written in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.store.connection_pool import Store, sql

OPEN_REQUESTS_MAX = 20
"""Of one account; each takes seconds, and more is a loop."""


class ChainRequestKind(Enum):
    DEPOSIT = "deposit"
    CLAIM = "claim"


class ChainRequestState(Enum):
    """`DECIDED`: its transactions are in the outbox. The last two are final."""

    ASKED = "asked"
    DECIDED = "decided"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewChainRequest:
    id: str
    """An idempotency key: a second request of this id changes nothing."""
    kind: ChainRequestKind
    account_id: AccountId
    address: str
    micro: int
    epoch: int | None = None
    """The payout batch that proves a claim."""


@dataclass(frozen=True, slots=True)
class ChainRequestRow(NewChainRequest):
    state: ChainRequestState = ChainRequestState.ASKED
    reason: str | None = None
    tx: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxCall:
    business_id: str
    recipient: str
    data: bytes


class ChainRequestStore(Store):
    async def insert(self, new: NewChainRequest) -> bool:
        """False, and nothing changes, if there is one of this id or the account has too many open."""
        values = (new.id, new.kind.value, new.account_id, new.address, new.micro, new.epoch)
        return await self._pool.value("ask_of_chain", *values, OPEN_REQUESTS_MAX) is not None

    async def find(self, request_id: str) -> ChainRequestRow | None:
        return await self._pool.row_as(_request_row, "find_chain_request", request_id)

    async def list_asked(self, *, limit: int) -> list[ChainRequestRow]:
        """The oldest of each address that has none in flight."""
        return await self._pool.rows_as(_request_row, "chain_requests_asked", limit)

    async def list_decided(self, *, limit: int) -> list[ChainRequestRow]:
        return await self._pool.rows_as(_request_row, "chain_requests_decided", limit)

    async def enqueue_calls(self, request_id: str, *, sender: str, calls: Sequence[OutboxCall]) -> bool:
        """Put its transactions into the outbox and mark the request, both or neither. False if that was done before."""
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


def _request_row(*, kind: str, state: str, **columns: Any) -> ChainRequestRow:
    return ChainRequestRow(kind=ChainRequestKind(kind), state=ChainRequestState(state), **columns)
