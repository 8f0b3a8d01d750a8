"""Payout batches: what every address has earned and spent in all, as the Merkle root for the settlement contract.

The token has six decimals; the nano-dollars below them stay in the ledger for a later batch. A leaf is the contract's
`PayoutEntry` and leaves are ordered by address, so anyone can compute the root from the published leaves. Posting roots
and claiming is the work of `chain/money/`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparewatt.core.clock import Clock
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.rules import conversion_postings, payout_postings
from sparewatt.protocol.contracts.merkle import MerkleTree
from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from sparewatt.store.ledger import Transfer
from sparewatt.store.payouts import (
    AccountStanding,
    HeldConversion,
    PayoutBatchDraft,
    PayoutBatchRow,
    PayoutLeafRow,
    PayoutStore,
)

NANO_PER_MICRO = 1_000


@dataclass(frozen=True, slots=True)
class PayoutLeafProof:
    """The Merkle proof of one leaf, with which an address claims its earnings."""

    epoch: int
    leaf: PayoutLeafRow
    index: int
    path: tuple[bytes, ...]


def payout_tree(leaves: Iterable[PayoutLeafRow]) -> MerkleTree:
    """`leaves` must be ordered by address."""
    return settlement_tree([PayoutEntry(leaf.address, leaf.earned_micro, leaf.spent_micro) for leaf in leaves])


@dataclass(frozen=True, slots=True)
class FullPayoutBatch:
    """A batch with its tree, which takes a second to compute if there are many leaves."""

    epoch: int
    leaves: Sequence[PayoutLeafRow]
    tree: MerkleTree

    def prove(self, address: str) -> PayoutLeafProof | None:
        """None if the address is not in it."""
        index = bisect_left(self.leaves, address, key=lambda leaf: leaf.address)
        if index == len(self.leaves) or self.leaves[index].address != address:
            return None
        return PayoutLeafProof(self.epoch, self.leaves[index], index, self.tree.path(index))


def build_batch(epoch: int, leaves: Sequence[PayoutLeafRow]) -> FullPayoutBatch:
    return FullPayoutBatch(epoch, leaves, payout_tree(leaves))


def changed_leaves(last: Mapping[str, PayoutLeafRow], standings: Iterable[AccountStanding]) -> list[PayoutLeafRow]:
    """The leaves that are new or higher. Amounts never fall: one that would stays as it was.

    What was promised to an old address of an account stays there; further earnings go to the new address.
    """
    spent_before = _spent_by_account(last.values())
    changed = []
    for standing in standings:
        before = last.get(standing.address) or PayoutLeafRow(standing.address, standing.account_id, 0, 0)
        added = standing.unpaid // NANO_PER_MICRO
        spent_more = max(0, standing.spent // NANO_PER_MICRO - spent_before.get(standing.account_id, 0))
        if added or spent_more:
            changed.append(
                replace(
                    before,
                    account_id=standing.account_id,
                    earned_micro=before.earned_micro + added,
                    spent_micro=before.spent_micro + spent_more,
                    added_micro=added,
                )
            )
    return changed


def _spent_by_account(leaves: Iterable[PayoutLeafRow]) -> dict[AccountId, int]:
    spent: dict[AccountId, int] = {}
    for leaf in leaves:
        spent[leaf.account_id] = spent.get(leaf.account_id, 0) + leaf.spent_micro
    return spent


def with_conversions(
    last: Mapping[str, PayoutLeafRow], changed: Sequence[PayoutLeafRow], conversions: Iterable[HeldConversion]
) -> list[PayoutLeafRow]:
    """What was held of an account's credits is earned and spent at once, by the address that it goes to."""
    rows = {leaf.address: leaf for leaf in changed}
    for each in conversions:
        micro, before = each.paid_nano // NANO_PER_MICRO, last.get(each.address)
        leaf = rows.get(each.address) or replace(
            before or PayoutLeafRow(each.address, each.account_id, 0, 0), added_micro=0
        )
        rows[each.address] = replace(
            leaf,
            earned_micro=leaf.earned_micro + micro,
            spent_micro=leaf.spent_micro + micro,
            added_micro=leaf.added_micro + micro,
        )
    return list(rows.values())


def draft_batch(
    epoch: int,
    leaves: Sequence[PayoutLeafRow],
    standings: Iterable[AccountStanding],
    conversions: Sequence[HeldConversion] = (),
    *,
    unix_s: float,
) -> PayoutBatchDraft | None:
    """The next batch. None if no account earned or spent a whole micro-dollar since the last."""
    last = {leaf.address: leaf for leaf in leaves}
    earning = changed_leaves(last, standings)
    changed = with_conversions(last, earning, conversions)
    if not changed:
        return None
    whole = sorted((last | {leaf.address: leaf for leaf in changed}).values(), key=lambda leaf: leaf.address)
    batch = PayoutBatchRow(
        epoch=epoch,
        unix_s=unix_s,
        root=payout_tree(whole).root,
        leaves=len(whole),
        promised_micro=sum(leaf.earned_micro for leaf in whole),
        added_micro=sum(leaf.added_micro for leaf in changed),
    )
    payments = [_payment(epoch, leaf, unix_s=unix_s) for leaf in earning if leaf.added_micro]
    return PayoutBatchDraft(batch, changed, [*payments, *(_conversion(each, unix_s=unix_s) for each in conversions)])


def _conversion(held: HeldConversion, *, unix_s: float) -> Transfer:
    lines = tuple(conversion_postings(held.account_id, held.paid_nano))
    return Transfer(f"convert:{held.id}:{unix_s:.3f}", "convert", held.account_id, held.paid_nano, lines, unix_s)


def _payment(epoch: int, leaf: PayoutLeafRow, *, unix_s: float) -> Transfer:
    nano = Nano(leaf.added_micro * NANO_PER_MICRO)
    lines = tuple(payout_postings(leaf.account_id, nano))
    cause = f"payout:{epoch}:{leaf.account_id}:{unix_s:.3f}"  # a struck batch is made anew; a new chain counts anew
    return Transfer(cause, "payout", leaf.account_id, nano, lines, unix_s)


class PayoutService:
    def __init__(self, store: PayoutStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cached_batch: FullPayoutBatch | None = None
        self._cache_lock = asyncio.Lock()

    async def make_batch(self, *, quiet_s: float = 0.0) -> PayoutBatchRow | None:
        """None if nothing changed, or the last batch is younger than `quiet_s`."""
        now = self._clock.unix_s()
        return await self._store.make_batch(partial(draft_batch, unix_s=now), now_unix_s=now, quiet_s=quiet_s)

    async def proof(self, epoch: int, address: str) -> PayoutLeafProof | None:
        """None if the address is not in that batch. The last batch is cached: none changes, but a struck one."""
        async with self._cache_lock:
            row, cached = await self._store.find_batch(epoch), self._cached_batch
            if row is None:
                return None
            if cached is None or (cached.epoch, cached.tree.root) != (epoch, row.root):
                leaves = await self._store.leaves_at(epoch)
                self._cached_batch = await asyncio.to_thread(build_batch, epoch, leaves)
                cached = self._cached_batch
            return cached.prove(address) if cached is not None else None
