"""The chart of accounts: every name that a posting may bear.

What the network owes is positive. The accounts that money comes from (deposits, grants) are negative by as much, so the
sum over all accounts is zero.
"""

from __future__ import annotations

from sparewatt.core.ids import AccountId, MatchId

DEPOSITS = "network:deposits"
"""What came in from outside; negative."""
GRANTS = "network:grants"
"""Promo credits in circulation, and the promo income they became; negative."""
TREASURY = "network:treasury"
"""What the operator put aside to turn promo income into payable income."""
FEES = "network:fees"
FEES_PROMO = "network:fees_promo"
PAYOUTS = "network:payouts"
"""What is in payout batches, claimed or not."""


def credits_of(account: AccountId) -> str:
    return f"credits:{account}"


def promo_of(account: AccountId) -> str:
    return f"promo:{account}"


def earned_by(account: AccountId) -> str:
    return f"earned:{account}"


def promo_earned_by(account: AccountId) -> str:
    return f"promo_earned:{account}"


def clearing_of(job_id: MatchId) -> str:
    """A job's own account: the payer's money goes in, the owners' earnings and the fee go out. Zero once settled."""
    return f"job:{job_id}"
