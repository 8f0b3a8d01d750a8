"""Chain requests: what accounts ask of the chain. Gateways insert them, the chain's process sends and finishes them.

A step of a request and its rows of the outbox are written in one transaction.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.store.chain import OutboxState
from sparewatt.store.connection_pool import Store, sql
from sparewatt.store.request_params import ChainRequestKind, RequestParams, decode_params, encode_params

CHANNEL = "chain_requests"
OPEN_REQUESTS_MAX = 20
"""Of one account; each takes seconds, and more is a loop."""


class ChainRequestState(Enum):
    """`DECIDED`: the transactions of its step are in the outbox. The last two are final."""

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
    """Whose signature the calls carry. Requests of one address are sent one after the other."""
    micro: int = 0
    params: Any = field(default_factory=RequestParams)
    """Of the type that `PARAMS_OF` has for the kind; None in a row that another release wrote in another form."""


@dataclass(frozen=True, slots=True)
class ChainRequestRow(NewChainRequest):
    state: ChainRequestState = ChainRequestState.ASKED
    step: int = 0
    """How many steps are done."""
    more_steps: bool = False
    """Whether another step follows the one whose transactions are in the outbox."""
    reason: str | None = None
    tx: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """What came of it, as the handler of its kind reads it from the events. Final only if the state is DONE."""


@dataclass(frozen=True, slots=True)
class InsertLimit:
    """At most so many requests of one kind by one account within so many seconds."""

    requests: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RequestUse:
    """How much of its limits an account has used."""

    under_way: int
    recent_left_s: list[float]
    """Of each request of a kind within the limit's time: in how many seconds it counts no more, the soonest first."""


NO_LIMIT = InsertLimit(requests=2**31 - 1, seconds=0)


@dataclass(frozen=True, slots=True)
class OutboxCall:
    business_id: str
    recipient: str
    data: bytes
    gas_limit: int | None = None


@dataclass(frozen=True, slots=True)
class SentCall:
    """A transaction of a request, as far as its outcome goes."""

    state: OutboxState
    reason: str | None
    tx_hash: bytes | None


class ChainRequestStore(Store):
    async def insert(self, new: NewChainRequest, *, limit: InsertLimit | None = None) -> bool:
        """False, and nothing changes, if there is one of this id, or the account has too many open or of this kind."""
        params, limit = encode_params(new.kind, new.params), limit or NO_LIMIT
        values = (new.id, new.kind.value, new.account_id, new.address, new.micro, params)
        limits = (OPEN_REQUESTS_MAX, limit.requests, limit.seconds)
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_chain_requests_of"), new.account_id)
            return await connection.fetchval(sql("ask_of_chain"), *values, *limits) is not None

    def inserted(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that each new request sets, whichever process inserts it."""
        return self._pool.listening(CHANNEL)

    async def problem(self) -> str | None:
        """What keeps the chain's process from working on requests, in words."""
        found: str | None = await self._pool.value("chain_problem")
        return found

    async def find(self, request_id: str) -> ChainRequestRow | None:
        return await self._pool.row_as(_request_row, "find_chain_request", request_id)

    async def use_of(self, account_id: AccountId, kind: ChainRequestKind, *, seconds: float) -> RequestUse:
        found = await self._pool.row_as(RequestUse, "chain_request_use", account_id, kind.value, seconds)
        return found or RequestUse(0, [])

    async def count_finished(self, address: str, kind: ChainRequestKind) -> int:
        """Requests of this kind whose calls the address signs, and that have ended."""
        return int(await self._pool.value("count_finished_chain_requests", address, kind.value))

    async def list_asked(self, *, limit: int) -> list[ChainRequestRow]:
        """Those that are due: the oldest of each address that has none in flight."""
        return await self._pool.rows_as(_request_row, "chain_requests_asked", limit)

    async def list_decided(self, *, limit: int) -> list[ChainRequestRow]:
        """Those with no transaction that is still under way, then the others; the oldest first."""
        return await self._pool.rows_as(_request_row, "chain_requests_decided", limit)

    async def list_sent(self, request_id: str) -> list[SentCall]:
        """The transactions of all its steps, in order."""
        return await self._pool.rows_as(_sent_call, "outbox_of_request", request_id)

    async def enqueue_calls(
        self, row: ChainRequestRow, *, sender: str, calls: Sequence[OutboxCall], more_steps: bool
    ) -> bool:
        """Put a step's transactions into the outbox and mark the request, both or neither. False if that was done."""
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("note_request_decided"), row.id, row.step, more_steps) is None:
                return False
            for call in calls:
                values = (call.business_id, sender, call.recipient, call.data, call.gas_limit, row.id)
                await connection.execute(sql("decide_request_outbox"), *values)
        return True

    async def begin_next_step(self, row: ChainRequestRow) -> None:
        """After the outcome of the row's step is final."""
        await self._pool.execute("begin_next_request_step", row.id, row.step)

    async def postpone(self, request_id: str, *, seconds: float) -> None:
        """Ask for its calls again after that time; meanwhile other requests of its address may be sent."""
        await self._pool.execute("postpone_chain_request", request_id, seconds)

    async def note_result(self, request_id: str, result: Mapping[str, Any]) -> None:
        """What the chain shows so far; a reorg may change it until the request is done."""
        await self._pool.execute("note_request_result", request_id, json.dumps(dict(result)))

    async def finish(
        self, request_id: str, state: ChainRequestState, *, reason: str | None = None, tx: str | None = None
    ) -> None:
        await self._pool.execute("end_chain_request", request_id, state.value, reason, tx)


def _request_row(*, kind: str, state: str, params: str, result: str | None, **columns: Any) -> ChainRequestRow:
    known = ChainRequestKind(kind)
    return ChainRequestRow(
        kind=known,
        state=ChainRequestState(state),
        params=decode_params(known, params),
        result=json.loads(result) if result else {},
        **columns,
    )


def _sent_call(*, state: str, **columns: Any) -> SentCall:
    return SentCall(state=OutboxState(state), **columns)
