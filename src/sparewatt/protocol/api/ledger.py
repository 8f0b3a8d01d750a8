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


class UptimeFundBalance(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator put aside to credit renters whose leases were down."""

    balance_usd: str
    balance_nano: int
    daily_limit_usd: str
    """How much may be credited per day (UTC), in all. 0: this network credits nothing."""
    daily_limit_nano: int
    credited_today_usd: str
    credited_today_nano: int
    waiting_usd: str
    """Due, and not credited yet: for want of money in the fund, or of today's limit."""
    waiting_nano: int
    waiting_leases: int
    goal_percent: str
    """A lease below it is credited."""


class UptimeCreditEntry(msgspec.Struct, frozen=True, kw_only=True):
    lease: str
    order: str
    account: str
    percent: str
    due_usd: str
    credited_usd: str | None
    """None if it waits, or nothing is due."""
    credited_at: float | None
    ended_at: float
    reason: str | None
    """Why nothing is due: `own_provider`, `compensated` or `no_fee`."""


class UptimeFundReply(msgspec.Struct, frozen=True, kw_only=True):
    fund: UptimeFundBalance
    data: list[UptimeCreditEntry]
    """The leases that ended below the goal, the newest first; at most 50."""


class UptimeFundPosting(msgspec.Struct, frozen=True, kw_only=True):
    """The result of funding it."""

    id: str
    posted: bool
    """False if the id was used before: nothing changed then."""
    fund: UptimeFundBalance


class LedgerRebuild(LedgerAudit, frozen=True, kw_only=True):
    """The audit after balances were computed again from the postings."""

    balances_corrected: int
