"""The settlement contract as our own books see it: deposits that come in, earnings that are claimed.

What a deposit or a claim means for an account is the ledger's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.chain.contracts import Contracts
from sparewatt.chain.delivery import Delivery, Handler
from sparewatt.chain.model import Call
from sparewatt.store.chain import ChainStore

SETTLEMENT = "settlement"


@dataclass(frozen=True, slots=True)
class Claim:
    """An account's line in a posted root, with the path that proves it. Amounts are cumulative, in the token's unit."""

    pool: int
    epoch: int
    account: str
    earned: int
    spent: int
    index: int
    path: Sequence[bytes]


def claim_call(contracts: Contracts, claim: Claim) -> Call:
    """What the account's own key sends to be paid. Raises ContractsMissing."""
    entry = (claim.account, claim.earned, claim.spent)
    return contracts[SETTLEMENT].call("claim", claim.pool, claim.epoch, entry, claim.index, list(claim.path))


def deposits(store: ChainStore, *, depth: int, credit: Handler) -> Delivery:
    """Hands each final `Deposited` event to `credit`, at least once: it must act under `delivery.business_id`."""
    return Delivery(store, reader="deposits", names=[f"{SETTLEMENT}.Deposited"], depth=depth, handle=credit)
