"""`/v1/ledger`: an audit of the double-entry ledger."""

from __future__ import annotations

import msgspec


class LedgerAudit(msgspec.Struct, frozen=True, kw_only=True):
    in_order: bool
    """Whether all of the following are zero."""
    sum_nano: int
    """Over all postings, in nano-dollars."""
    unbalanced_causes: int
    """Causes whose postings do not sum to zero, as double entry requires."""
    open_clearing_accounts: int
    """Jobs whose clearing account does not end at zero."""
    wrong_balances: int
    """Accounts whose balance is not the sum of their postings."""
    overdrawn: int
    """Accounts of free or paid credits that are below zero."""


class LedgerRebuild(LedgerAudit, frozen=True, kw_only=True):
    """The audit after balances were computed again from the postings."""

    balances_corrected: int
