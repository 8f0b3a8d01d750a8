"""The chart of accounts: every name that a posting may bear.

What the network owes is positive. The accounts that money comes from (deposits, grants) are negative by as much, so the
sum over all accounts is zero.

The pockets of an account are what it has in contracts and at addresses whose keys the network holds: `wallet`,
`escrow`, `bond` and `owed`. Final events of the chain feed and empty them, nothing else does.
"""

from __future__ import annotations

from sparewatt.core.ids import AccountId, MatchId, NodeId

DEPOSITS = "network:deposits"
"""Everything outside of the books: minus what came in and did not leave again."""
GRANTS = "network:grants"
"""Promo credits in circulation, and the promo income they became; negative."""
TREASURY = "network:treasury"
"""What the operator put aside to turn promo income into payable income."""
UPTIME_FUND = "network:uptime"
"""What the operator put aside to credit renters whose leases were down."""
FEES = "network:fees"
FEES_PROMO = "network:fees_promo"
FORFEITS = "network:forfeits"
"""What nodes earned and lost again, because their answers failed checks."""
PAYOUTS = "network:payouts"
"""What is in payout batches and not claimed yet."""
REWARDS = "network:rewards"
"""What the operator deposited for era rewards, and what eras left."""
REWARD_PAYOUTS = "network:reward_payouts"
"""What is in reward batches and not claimed yet. The contract's pool of rewards covers it, not that of credits."""
SHORTFALL = "network:shortfall"
"""Minus what the chain paid out to accounts beyond the credits that they had left: the network's loss."""


def credits_of(account: AccountId) -> str:
    return f"credits:{account}"


def promo_of(account: AccountId) -> str:
    return f"promo:{account}"


def earned_by(account: AccountId) -> str:
    return f"earned:{account}"


def promo_earned_by(account: AccountId) -> str:
    return f"promo_earned:{account}"


def withheld_by(account: AccountId, node_id: NodeId) -> str:
    """Earned by one node since its last passed check: the account's if the next is passed, too."""
    return f"withheld:{account}:{node_id}"


def promo_withheld_by(account: AccountId, node_id: NodeId) -> str:
    return f"promo_withheld:{account}:{node_id}"


def pocket_of(pocket: str, account: AccountId) -> str:
    """`wallet`: tokens at its addresses. `escrow`: deposits of its leases. `bond`: bonds of its providers. `owed`: what
    contracts owe to its addresses."""
    return f"{pocket}:{account}"


def given_to(account: AccountId) -> str:
    """Promo credits that were turned into test tokens; they are promo credits again if the tokens come back."""
    return f"given:{account}"


def clearing_of(job_id: MatchId) -> str:
    """A job's own account: the payer's money goes in, the owners' earnings and the fee go out. Zero once settled."""
    return f"job:{job_id}"
