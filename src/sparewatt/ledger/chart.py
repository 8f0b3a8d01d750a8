"""The chart of accounts: every name that a posting may bear, in one place.

What the network owes somebody is positive; where money comes from (the outside, the network's own generosity) goes
negative by as much. So the sum over everything is always zero.
"""

from __future__ import annotations

from sparewatt.core.ids import AccountId, MatchId

DEPOSITS = "network:deposits"
"""What came in from outside; negative."""
GRANTS = "network:grants"
"""Free credits in circulation, and what they turned into; negative."""
TREASURY = "network:treasury"
"""What the operator put aside to turn promo income into real income."""
FEES = "network:fees"
FEES_PROMO = "network:fees_promo"
PAYOUTS = "network:payouts"
"""What was paid out to owners and is waiting on chain, or claimed there."""


def credits_of(account: AccountId) -> str:
    return f"credits:{account}"


def promo_of(account: AccountId) -> str:
    return f"promo:{account}"


def earned_by(account: AccountId) -> str:
    return f"earned:{account}"


def promo_earned_by(account: AccountId) -> str:
    return f"promo_earned:{account}"


def clearing_of(job_id: MatchId) -> str:
    """A job's own account: what its payer pays goes in, what its nodes earn goes out. Zero once it is settled."""
    return f"job:{job_id}"
