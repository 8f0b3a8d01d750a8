"""`/v1/ledger`: an audit of the double-entry ledger."""

from __future__ import annotations

import msgspec


class ChainDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A pocket of which the books say something else than the chain."""

    account: str | None
    """None for what is no account's, like the pool."""
    pocket: str
    """`wallet`, `escrow`, `bond`, `owed` or `pool`."""
    id: str
    """An address, a lease, `contract:address`, or `ledger` where a balance is not the sum of its pockets."""
    books_micro: int
    chain_micro: int


class ChainAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The books compared with the chain, at a final block."""

    in_order: bool
    block: int
    addresses: int
    """Whose keys the network holds; each was compared."""
    differences: list[ChainDifference]
    pool_micro: int
    """What the pool of credits holds, in micro-dollars."""
    uncovered_nano: int
    """What the books owe beyond that pool. 0 is right."""
    shortfall_nano: int
    """What exits were paid beyond the credits that were left. 0 is right."""


class LedgerAudit(msgspec.Struct, frozen=True, kw_only=True):
    in_order: bool
    """Whether all of the following are zero, and the books agree with the chain as far as they were compared."""
    sum_nano: int
    """Over all postings, in nano-dollars."""
    unbalanced_causes: int
    """Causes whose postings do not sum to zero, as double entry requires."""
    open_clearing_accounts: int
    """Jobs whose clearing account does not end at zero."""
    wrong_balances: int
    """Accounts whose balance is not the sum of their postings."""
    overdrawn: int
    """Accounts that are below zero and may not be."""
    chain: ChainAudit | None = None
    """None on a network without a chain, or while its chain's process does not answer."""
    chain_note: str | None = None
    """Why there is no comparison with the chain."""


class LedgerRebuild(LedgerAudit, frozen=True, kw_only=True):
    """The audit after balances were computed again from the postings."""

    balances_corrected: int
