"""What renters have ordered, in Postgres: names and content documents. The chain knows these by their hashes only.

An order's row, its document and its chain request are written in one transaction: an order that reaches the chain has a
document that bidders can be given.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.store.chain_requests import (
    NO_LIMIT,
    OPEN_REQUESTS_MAX,
    ChainRequestState,
    InsertLimit,
    NewChainRequest,
)
from sparewatt.store.connection_pool import Store, sql
from sparewatt.store.request_params import ChainRequestKind, OrderParams, decode_params, encode_params


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """A specification, and the content document that it has the hash of."""

    spec_hash: str
    specification: Specification
    content: str


@dataclass(frozen=True, slots=True)
class NewLeaseOrder:
    lease_id: str
    """Unique in its account."""
    request: NewChainRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLeaseBatch:
    """Orders of one specification under one name: all are stored, or none."""

    account_id: AccountId
    reference: str
    """The client's idempotency key."""
    name: str
    asked_hash: str
    """Of the order as it was asked for, to tell a repeated request from another one with the same id."""
    spec: LeaseSpec
    orders: tuple[NewLeaseOrder, ...]
    max_spend_micro: int | None = None
    """Of each lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOrderRow:
    lease_id: str
    account_id: AccountId
    batch: str
    name: str
    asked_hash: str
    spec_hash: str
    specification: Specification
    image: str
    secrets: tuple[str, ...]
    content: str | None
    """The whole document; None in lists."""
    created_unix_s: float
    deposit_micro: int
    params: OrderParams | None
    """None in a row that another release wrote in another form."""
    state: ChainRequestState
    reason: str | None
    tx: str | None
    order_id: str | None
    """From the first block that has it; a reorg may change it until the state is DONE."""
    max_spend_micro: int | None = None
    """What the renter lets it cost at most; None: only its deposit bounds it."""


class RefusedInsert(Exception):
    """One of a batch was not inserted."""


class LeaseOrderStore(Store):
    async def insert(self, batch: NewLeaseBatch, *, limit: InsertLimit | None = None) -> bool:
        """False, and nothing changes, if one of its ids exists, or the account has too many requests."""
        try:
            await self._insert(batch, limit or NO_LIMIT)
        except RefusedInsert:
            return False
        return True

    async def _insert(self, batch: NewLeaseBatch, limit: InsertLimit) -> None:
        spec, limits = batch.spec, (OPEN_REQUESTS_MAX, limit.requests, limit.seconds)
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_chain_requests_of"), batch.account_id)
            specification = json.dumps(write_message(spec.specification))
            await connection.execute(sql("insert_lease_spec"), spec.spec_hash, specification, spec.content)
            for order in batch.orders:
                new, params = order.request, encode_params(order.request.kind, order.request.params)
                values = (new.id, new.kind.value, new.account_id, new.address, new.micro, params)
                if await connection.fetchval(sql("ask_of_chain"), *values, *limits) is None:
                    raise RefusedInsert
                names = (order.lease_id, batch.reference, batch.name, batch.asked_hash, spec.spec_hash)
                row = (new.id, batch.account_id, *names, batch.max_spend_micro)
                await connection.execute(sql("insert_lease_order"), *row)

    async def find_batch(self, account_id: AccountId, reference: str, *, limit: int) -> list[LeaseOrderRow]:
        """The orders of an idempotency key, in the order of their making."""
        rows = await self._list(account_id, reference, None, None, None, limit, False)
        return sorted(rows, key=lambda row: (len(row.lease_id), row.lease_id))

    async def find(self, account_id: AccountId, wanted: str, *, limit: int) -> list[LeaseOrderRow]:
        """By the lease's id, the order's, or the name; a name may stand for several, the newest first."""
        return await self._list(account_id, None, wanted, None, None, limit, True)

    async def list_of(
        self, account_id: AccountId, *, before: tuple[float, str] | None, limit: int
    ) -> list[LeaseOrderRow]:
        """The newest first: those older than a position, by time and id."""
        return await self._list(account_id, None, None, *(before or (None, None)), limit, False)

    async def set_max_spend(self, account_id: AccountId, lease_id: str, *, micro: int) -> None:
        await self._pool.execute("set_lease_max_spend", account_id, lease_id, micro)

    async def top_ups_under_way_micro(self, account_id: AccountId, order_id: str) -> int:
        """What was asked to be added to a deposit, and is not final yet."""
        return int(await self._pool.value("top_ups_under_way", account_id, order_id))

    async def save_spec(self, spec: LeaseSpec) -> None:
        """Of an update that is about to be proposed. Its hash covers all of it, so nothing is replaced."""
        specification = json.dumps(write_message(spec.specification))
        await self._pool.execute("insert_lease_spec", spec.spec_hash, specification, spec.content)

    async def find_spec(self, spec_hash: str, *, renter: str) -> LeaseSpec | None:
        """What the chain has the hash of; None for an order that was not made through this network's gateways.

        Nor for one with the hash of another's order: its document goes to those bidders only that its renter lets bid.
        """
        return await self._pool.row_as(_spec, "find_lease_spec", spec_hash, renter.lower())

    async def _list(self, *values: Any) -> list[LeaseOrderRow]:
        return await self._pool.rows_as(_row, "list_lease_orders", *values)


def _spec(*, spec_hash: str, specification: str, content: str) -> LeaseSpec:
    return LeaseSpec(spec_hash, read_message(Specification, json.loads(specification)), content)


def _row(*, specification: str, secrets: list[str], params: str, state: str, **columns: Any) -> LeaseOrderRow:
    return LeaseOrderRow(
        specification=read_message(Specification, json.loads(specification)),
        secrets=tuple(secrets),
        params=decode_params(ChainRequestKind.ORDER, params),
        state=ChainRequestState(state),
        **columns,
    )
