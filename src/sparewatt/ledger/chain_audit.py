"""The books compared with the chain, to the unit: pure functions over what both say at one final block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparewatt.core.ids import AccountId
from sparewatt.ledger.chart import pocket_of
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.api.ledger import ChainDifference
from sparewatt.store.chain_audit import BooksOwe, PoolFlows
from sparewatt.store.pockets import OwnedPocketRow, PocketKey

DIFFERENCES_MAX = 1_000
"""Listed in one report; one is reason enough to look into it."""


def pocket_differences(
    rows: Sequence[OwnedPocketRow], on_chain: Mapping[PocketKey, tuple[AccountId, int]]
) -> list[ChainDifference]:
    """Each pocket of our accounts: what events say against what the contract says."""
    booked = {(row.pocket, row.id): (row.account_id, row.micro) for row in rows}
    found = []
    for key in sorted({*booked, *on_chain}, key=lambda key: (key[0].value, key[1])):
        account, micro = booked.get(key) or (on_chain[key][0], 0)
        chain_micro = on_chain[key][1] if key in on_chain else 0
        if micro != chain_micro:
            pocket, id_ = key
            found.append(_difference(account, pocket.value, id_, micro, chain_micro))
    return found


def balance_differences(rows: Sequence[OwnedPocketRow], balances: Mapping[str, int]) -> list[ChainDifference]:
    """Each account of the ledger for pockets: its balance against the sum of its pockets."""
    sums: dict[str, int] = {}
    for row in rows:
        name = pocket_of(row.pocket.value, row.account_id)
        sums[name] = sums.get(name, 0) + row.micro
    found = []
    for name in sorted({*sums, *balances}):
        nano, micro = balances.get(name, 0), sums.get(name, 0)
        if nano != micro * NANO_PER_MICRO:
            pocket, _, account = name.partition(":")
            found.append(_difference(AccountId(account), pocket, "ledger", nano // NANO_PER_MICRO, micro))
    return found


def pool_differences(flows: PoolFlows, *, funded: int, paid: int, name: str = "settlement") -> list[ChainDifference]:
    """A pool on chain: what came in, less exits and claims."""
    expected = flows.deposited + flows.funded - flows.exited - flows.claimed
    if expected == funded - paid:
        return []
    return [_difference(None, "pool", name, expected, funded - paid)]


def uncovered_nano(owe: BooksOwe, *, pool_micro: int) -> int:
    """What the books owe beyond the pool, what is held for exits, and what came in by no chain. At most 0 is right."""
    return owe.owed - (pool_micro * NANO_PER_MICRO + owe.held + owe.elsewhere)


def _difference(account: AccountId | None, pocket: str, id_: str, books: int, chain: int) -> ChainDifference:
    return ChainDifference(account=account, pocket=pocket, id=id_, books_micro=books, chain_micro=chain)
