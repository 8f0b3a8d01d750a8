"""Payout batches in Postgres: made in one transaction with their postings, then only marked."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from sparewatt.core.ids import AccountId
from sparewatt.core.limits import PAYOUT_LEAVES_MAX
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.ledger import LedgerStore, Transfer, post_transfers_within, to_columns
from sparewatt.store.queries import sql


@dataclass(frozen=True, slots=True)
class PayoutLeafRow:
    """What an address has earned and spent in all, in micro-USD."""

    address: str
    account_id: AccountId
    earned_micro: int
    spent_micro: int
    added_micro: int = 0
    """Of what was earned, that of this batch."""


@dataclass(frozen=True, slots=True)
class PayoutBatchRow:
    epoch: int
    unix_s: float
    root: bytes
    leaves: int
    promised_micro: int
    added_micro: int
    posted_unix_s: float | None = None
    posted_tx: str | None = None


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """Where an account stands in the books: what it earned and was not paid, and what it ever spent."""

    account_id: AccountId
    address: str
    unpaid: Nano
    spent: Nano


@dataclass(frozen=True, slots=True)
class PayoutBatchDraft:
    """A batch that is to be stored: its leaves that are new, and the postings that go with them."""

    batch: PayoutBatchRow
    changed: Sequence[PayoutLeafRow]
    transfers: Sequence[Transfer]


@dataclass(frozen=True, slots=True)
class AccountPayoutRow:
    """One batch from the point of view of one account."""

    epoch: int
    unix_s: float
    address: str
    earned_micro: int
    added_micro: int
    posted_unix_s: float | None
    claimed: bool


@dataclass(frozen=True, slots=True)
class ClaimablePayoutRow:
    """An address's last line that is on the chain, the batch to prove it by, and what was fetched of it."""

    address: str
    epoch: int
    earned_micro: int
    claimed_micro: int


DraftBatch = Callable[[int, list[PayoutLeafRow], list[AccountStanding]], PayoutBatchDraft | None]
"""From the number of the next batch, the leaves so far and how accounts stand: the next batch, if there is news."""


class PayoutStore:
    def __init__(self, pool: ConnectionPool, books: LedgerStore) -> None:
        self._pool = pool
        self._books = books

    async def make_batch(self, draw: DraftBatch, *, now_unix_s: float, quiet_s: float = 0.0) -> PayoutBatchRow | None:
        """The next batch, all of it or nothing. None if there is no news, or the last is younger than `quiet_s`.

        Nothing else takes from what was earned, so there is as much at the end as was seen at the start, and jobs need
        not wait while the tree is made.
        """
        await self._books.ensure_month(now_unix_s)
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_payouts"))
            last = await connection.fetchrow(sql("last_batch"))
            if last is not None and now_unix_s - last["at"].timestamp() < quiet_s:
                return None
            epoch = last["epoch"] + 1 if last else 1
            leaves = [_leaf_row(row) for row in await connection.fetch(sql("leaves_at"), epoch, "", PAYOUT_LEAVES_MAX)]
            standings = [_standing(row) for row in await connection.fetch(sql("standings"), PAYOUT_LEAVES_MAX)]
            draft = await asyncio.to_thread(draw, epoch, leaves, standings)
            if draft is None:
                return None
            await connection.execute(sql("insert_batch"), *_batch_values(draft.batch))
            changed = [_leaf_values(epoch, leaf) for leaf in draft.changed]
            await connection.execute(sql("insert_leaves"), *to_columns(changed, width=6))
            await post_transfers_within(connection, draft.transfers)
        return draft.batch

    async def batches(self, *, before: int | None, limit: int) -> list[PayoutBatchRow]:
        """Newest first, from the one before `before`."""
        return [_batch_row(row) for row in await self._pool.rows("batches", before, limit)]

    async def find_batch(self, epoch: int) -> PayoutBatchRow | None:
        row = await self._pool.row("find_batch", epoch)
        return _batch_row(row) if row else None

    async def leaves_at(self, epoch: int, *, after: str = "", limit: int = PAYOUT_LEAVES_MAX) -> list[PayoutLeafRow]:
        """The tree of a batch, in order: the last leaf of each address up to it, from the address after `after`."""
        return [_leaf_row(row) for row in await self._pool.rows("leaves_at", epoch, after, limit)]

    async def list_payouts(self, account_id: AccountId, *, before: int | None, limit: int) -> list[AccountPayoutRow]:
        """Newest first."""
        rows = await self._pool.rows("paid_to", account_id, before, limit)
        return [AccountPayoutRow(**_unix(dict(row.items()), "at", "posted_at")) for row in rows]

    async def payout_totals(self, account_id: AccountId) -> tuple[int, int, int]:
        """In micro-USD: in batches that wait, in batches that are posted, claimed of those."""
        row = await self._pool.row("settled", account_id)
        return (row["waiting"], row["posted"], row["claimed"]) if row else (0, 0, 0)

    async def first_unposted_batch(self) -> PayoutBatchRow | None:
        """The next that the chain has to take: it takes them in order."""
        row = await self._pool.row("first_unposted_batch")
        return _batch_row(row) if row else None

    async def list_claimable(self, account_id: AccountId, *, limit: int) -> list[ClaimablePayoutRow]:
        """What each address of an account has in the newest posted batch, beyond what it fetched."""
        return [
            ClaimablePayoutRow(**dict(row.items())) for row in await self._pool.rows("claimable", account_id, limit)
        ]

    async def mark_posted(self, epoch: int, *, tx: str, unix_s: float) -> bool:
        """False if it was marked before, or is not there."""
        return await self._pool.value("mark_posted", epoch, tx, unix_s) is not None

    async def mark_claimed(self, address: str, *, claimed_micro: int) -> None:
        """What an address has claimed in all; never less than was known."""
        await self._pool.execute("mark_claimed", address, claimed_micro)


def _standing(row: asyncpg.Record) -> AccountStanding:
    return AccountStanding(AccountId(row["account_id"]), row["address"], Nano(row["unpaid"]), Nano(row["spent"]))


def _leaf_row(row: asyncpg.Record) -> PayoutLeafRow:
    return PayoutLeafRow(**dict(row.items()))


def _leaf_values(epoch: int, leaf: PayoutLeafRow) -> tuple[object, ...]:
    return (leaf.address, epoch, leaf.account_id, leaf.earned_micro, leaf.spent_micro, leaf.added_micro)


def _batch_row(row: asyncpg.Record) -> PayoutBatchRow:
    return PayoutBatchRow(**_unix(dict(row.items()), "at", "posted_at"))


def _batch_values(batch: PayoutBatchRow) -> tuple[object, ...]:
    return (batch.epoch, batch.unix_s, batch.root, batch.leaves, batch.promised_micro, batch.added_micro)


def _unix(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Moments as Unix seconds: `at` becomes `unix_s`, `posted_at` becomes `posted_unix_s`."""
    for name in names:
        moment: dt.datetime | None = values.pop(name)
        values[name.removesuffix("at") + "unix_s"] = moment.timestamp() if moment is not None else None
    return values
