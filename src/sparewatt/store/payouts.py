"""Payout batches in Postgres: inserted in one transaction with their postings, later marked as posted and claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.store.connection_pool import ConnectionPool, Store, sql
from sparewatt.store.ledger import LedgerStore, Transfer, post_transfers_within, to_columns
from sparewatt.store.migrations import PgConnection

CREDIT_POOL_ID = 0
"""The pool of deposits, which pays for inference."""
REWARD_POOL_ID = 1
"""The pool of era rewards."""
CONVERSIONS_MAX = 10_000
"""Holds that one batch makes tokens of; the others wait for the next."""
LEAVING_S = 15.0
"""What gateways still have reserved of an account this long after its exit was seen counts as spent: idle slices were
returned by then, and what is left is for requests that run."""
LEAVES_MAX = 1 << 20
"""Addresses in one payout root: the settlement contract takes no more."""


@dataclass(frozen=True, slots=True)
class PayoutLeafRow:
    """What an address has earned and spent in all, in micro-USD: one leaf of the Merkle tree."""

    address: str
    account_id: AccountId
    earned_micro: int
    spent_micro: int
    added_micro: int = 0
    """What this batch added to `earned_micro`."""


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
    is_ripe: bool = False
    """Whether the contract takes claims by it."""
    is_struck: bool = False
    """A guardian made the root void; a person decides what becomes of the batch."""
    strikes: int = 0
    """How often that happened to it."""


@dataclass(frozen=True, slots=True)
class RootStatus:
    """What payout roots wait for."""

    struck: int | None
    delayed: int | None
    ripe_unix_s: float | None
    """Of the delayed one, in chain time."""
    is_stopped: bool


@dataclass(frozen=True, slots=True)
class AccountStanding:
    account_id: AccountId
    address: str
    unpaid: Nano
    """Earned and in no batch yet."""
    spent: Nano
    """In all."""


@dataclass(frozen=True, slots=True)
class PayoutBatchDraft:
    """A batch to insert, with the leaves that changed and the transfers that go with them."""

    batch: PayoutBatchRow
    changed: Sequence[PayoutLeafRow]
    transfers: Sequence[Transfer]


@dataclass(frozen=True, slots=True)
class AccountPayoutRow:
    """One batch, as one account sees it."""

    epoch: int
    unix_s: float
    address: str
    earned_micro: int
    added_micro: int
    posted_unix_s: float | None
    claimed: bool


@dataclass(frozen=True, slots=True)
class ClaimablePayoutRow:
    """The last leaf of an address on the chain, the batch that proves it, and what was claimed of it."""

    address: str
    epoch: int
    earned_micro: int
    claimed_micro: int


@dataclass(frozen=True, slots=True)
class HeldConversion:
    """Credits that the batch makes tokens of: earned and spent at once."""

    id: str
    """Of the hold."""
    account_id: AccountId
    address: str
    paid_nano: Nano


DraftBatch = Callable[[int, list[PayoutLeafRow], list[AccountStanding], list[HeldConversion]], PayoutBatchDraft | None]
"""From the epoch of the next batch, the leaves so far, the accounts' standings and what is to become tokens: the next
batch, if any changed."""


class PayoutStore(Store):
    """The batches of one pool of the settlement contract."""

    def __init__(self, pool: ConnectionPool, ledger: LedgerStore, *, pool_id: int = CREDIT_POOL_ID) -> None:
        super().__init__(pool)
        self._ledger = ledger
        self.pool_id = pool_id

    async def make_batch(
        self, draft_batch: DraftBatch, *, now_unix_s: float, quiet_s: float = 0.0
    ) -> PayoutBatchRow | None:
        """Insert the next batch, all or nothing. None if nothing changed, or the last is younger than `quiet_s`.

        Only payouts take from earnings, so they cannot shrink while the tree is computed, and jobs need no lock.
        """
        await self._ledger.ensure_months([now_unix_s])
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_payouts"))
            last = await connection.fetchrow(sql("last_batch"), self.pool_id)
            if last is not None and now_unix_s - last["unix_s"] < quiet_s:
                return None
            epoch = last["epoch"] + 1 if last else 1
            rows = await connection.fetch(sql("leaves_at"), epoch, "", LEAVES_MAX, self.pool_id)
            leaves = [PayoutLeafRow(**row) for row in rows]
            rows = await connection.fetch(sql("standings"), LEAVES_MAX, LEAVING_S)
            standings = [AccountStanding(**row) for row in rows]
            rows = await connection.fetch(sql("holds_to_convert"), CONVERSIONS_MAX)
            conversions = [HeldConversion(**row) for row in rows]
            draft = await asyncio.to_thread(draft_batch, epoch, leaves, standings, conversions)
            if draft is None:
                return None
            await insert_batch_within(connection, draft, pool_id=self.pool_id)
            for conversion in conversions:
                await connection.execute(sql("drop_slices"), f"hold:{conversion.id}")
                await connection.execute(sql("note_hold_converted"), conversion.id, epoch)
            await post_transfers_within(connection, draft.transfers)
        return draft.batch

    async def batches(self, *, before: int | None, limit: int) -> list[PayoutBatchRow]:
        """Newest first, from the one before `before`."""
        return await self._pool.rows_as(PayoutBatchRow, "batches", before, limit, self.pool_id)

    async def find_batch(self, epoch: int) -> PayoutBatchRow | None:
        return await self._pool.row_as(PayoutBatchRow, "find_batch", epoch, self.pool_id)

    async def leaves_at(self, epoch: int, *, after: str = "", limit: int = LEAVES_MAX) -> list[PayoutLeafRow]:
        """The leaves of a batch's tree, by address: the last leaf of each up to this batch, from after `after`."""
        return await self._pool.rows_as(PayoutLeafRow, "leaves_at", epoch, after, limit, self.pool_id)

    async def list_payouts(self, account_id: AccountId, *, before: int | None, limit: int) -> list[AccountPayoutRow]:
        """Newest first."""
        return await self._pool.rows_as(AccountPayoutRow, "paid_to", account_id, before, limit, self.pool_id)

    async def payout_totals(self, account_id: AccountId) -> tuple[int, int, int]:
        """In micro-USD: in batches that are not posted, in posted batches, and claimed of those."""
        row = await self._pool.row("settled", account_id, self.pool_id)
        return (row["waiting"], row["posted"], row["claimed"]) if row else (0, 0, 0)

    async def first_unposted_batch(self) -> PayoutBatchRow | None:
        """The next that the contract takes: it takes them in order."""
        return await self._pool.row_as(PayoutBatchRow, "first_unposted_batch", self.pool_id)

    async def list_claimable(self, account_id: AccountId, *, limit: int) -> list[ClaimablePayoutRow]:
        """What each address of an account has in the newest ripe batch, beyond what it claimed."""
        return await self._pool.rows_as(ClaimablePayoutRow, "claimable", account_id, limit, self.pool_id)

    async def mark_posted(self, epoch: int, *, tx: str, unix_s: float, ripe_at: float) -> bool:
        """False if it was marked before, or does not exist. `ripe_at` is in chain time."""
        return await self._pool.value("mark_posted", epoch, tx, unix_s, ripe_at, self.pool_id) is not None

    async def mark_ripe(self, *, chain_unix_s: float) -> None:
        """What is ripe by this time of the chain."""
        await self._pool.execute("mark_ripe", chain_unix_s, self.pool_id)

    async def mark_struck(self, epoch: int) -> bool:
        """False if it is not posted, or ripe already."""
        return await self._pool.value("mark_struck", epoch, self.pool_id) is not None

    async def post_struck_again(self, epoch: int) -> bool:
        """After a person decided so. False if it is not struck."""
        return await self._pool.value("post_struck_again", epoch, self.pool_id) is not None

    async def root_status(self) -> RootStatus:
        row = await self._pool.row_as(RootStatus, "root_status", self.pool_id)
        return row or RootStatus(None, None, None, is_stopped=False)

    async def undo_struck(self, epoch: int, *, unix_s: float) -> int | None:
        """Take back a struck batch and all after it, so that the next batch is made anew from the books.

        Earnings are as before, and so are credits that were to become tokens. Returns how many batches that were;
        None if this one is not struck.
        """
        await self._ledger.ensure_months([unix_s])
        async with self._pool.transaction() as connection:
            await connection.execute(sql("lock_payouts"))
            if await connection.fetchval(sql("find_struck"), epoch, self.pool_id) is None:
                return None
            rows = await connection.fetch(sql("payouts_to_undo"), epoch)
            transfers = [_undone(epoch, unix_s=unix_s, **row) for row in rows]
            await connection.execute(sql("forget_conversions_from"), epoch)
            await connection.execute(sql("forget_leaves_from"), epoch, self.pool_id)
            undone = await connection.fetch(sql("forget_batches_from"), epoch, self.pool_id)
            await post_transfers_within(connection, transfers)
        return len(undone)

    async def last_ripe_epoch(self) -> int | None:
        epoch: int | None = await self._pool.value("last_ripe_epoch", self.pool_id)
        return epoch

    async def has_open_batch(self) -> bool:
        """Whether a batch is not ripe yet, posted or not."""
        return bool(await self._pool.value("has_open_batch", self.pool_id))

    async def has_batch_under_delay(self) -> bool:
        return bool(await self._pool.value("has_batch_under_delay", self.pool_id))

    async def has_unshown_spending(self, account_id: AccountId) -> bool:
        """Whether the account has spent a micro-dollar that is in no batch."""
        return int(await self._pool.value("unshown_spending", account_id, LEAVING_S)) > 0

    async def mark_claimed(self, address: str, *, claimed_micro: int) -> None:
        """What an address has claimed in all; a lower amount than the stored one changes nothing."""
        await self._pool.execute("mark_claimed", address, claimed_micro, self.pool_id)


async def insert_batch_within(connection: PgConnection, draft: PayoutBatchDraft, *, pool_id: int) -> None:
    """With its leaves; its transfers are the caller's to post. Within a transaction that holds the lock of payouts."""
    await connection.execute(sql("insert_batch"), *_batch_values(draft.batch), pool_id)
    changed = [_leaf_values(draft.batch.epoch, leaf) for leaf in draft.changed]
    await connection.execute(sql("insert_leaves"), *to_columns(changed, width=6), pool_id)


def _undone(epoch: int, *, account_id: str, earned_nano: int, converted_nano: int, unix_s: float) -> Transfer:
    nano = earned_nano + converted_nano
    lines = [(f"earned:{account_id}", earned_nano), (f"credits:{account_id}", converted_nano)]
    kept = tuple((name, part) for name, part in (*lines, ("network:payouts", -nano)) if part)
    cause = f"undo:{epoch}:{account_id}:{unix_s:.3f}"
    return Transfer(cause, "payout_undone", AccountId(account_id), Nano(nano), kept, unix_s)


def _leaf_values(epoch: int, leaf: PayoutLeafRow) -> tuple[object, ...]:
    return (leaf.address, epoch, leaf.account_id, leaf.earned_micro, leaf.spent_micro, leaf.added_micro)


def _batch_values(batch: PayoutBatchRow) -> tuple[object, ...]:
    return (batch.epoch, batch.unix_s, batch.root, batch.leaves, batch.promised_micro, batch.added_micro)
