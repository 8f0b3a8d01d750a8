"""The settlement contract and its token as our own books see them: views, calls, and which events are handed to whom.

What a deposit or a claim means for an account is the ledger's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparewatt.chain.abi import Contract
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts, shipped_artifacts
from sparewatt.chain.event_delivery import EventDelivery, EventHandler
from sparewatt.chain.model import ContractCall
from sparewatt.core.errors import ChainRefused
from sparewatt.store.chain import ChainStore

SETTLEMENT, TOKEN = "settlement", "token"
CREDIT_POOL_ID = 0
"""The pool of deposits, which pays for inference."""


@dataclass(frozen=True, slots=True)
class SettlementClaim:
    """An account's line in a posted root, with the path that proves it. Amounts are cumulative, in the token's unit."""

    pool: int
    epoch: int
    account: str
    earned: int
    spent: int
    index: int
    path: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class SettlementPool:
    """As the contract keeps it, in the token's unit: paid <= promised <= funded."""

    funded: int
    promised: int
    paid: int
    epoch: int


def claim_call(contracts: Contracts, claim: SettlementClaim) -> ContractCall:
    """What anybody may send: the money goes to the account that earned it. Raises ContractsMissing."""
    entry = (claim.account, claim.earned, claim.spent)
    return contracts[SETTLEMENT].encode_call("claim", claim.pool, claim.epoch, entry, claim.index, list(claim.path))


def deposit_delivery(store: ChainStore, *, depth: int, credit: EventHandler) -> EventDelivery:
    """Hands each final `Deposited` event to `credit`, at least once: it must act under `delivery.business_id`."""
    return EventDelivery(store, reader="deposits", names=[f"{SETTLEMENT}.Deposited"], depth=depth, handle=credit)


def payout_delivery(store: ChainStore, *, depth: int, note: EventHandler) -> EventDelivery:
    """Hands each final `RootPosted` and `Claimed` event to `note`, at least once, in the chain's order."""
    names = [f"{SETTLEMENT}.RootPosted", f"{SETTLEMENT}.Claimed"]
    return EventDelivery(store, reader="payouts", names=names, depth=depth, handle=note)


async def call_view(client: ChainClient, contract: Contract, function: str, *args: object) -> Any:
    """What a contract answers now. Raises ChainRefused where none is: a local chain may have lost its last second."""
    data = await client.call(contract.encode_call(function, *args))
    if not data:
        raise ChainRefused(f"The chain has no contract {contract.name!r} at {contract.address} right now.")
    return contract.decode_result(function, data, n_args=len(args))


async def settlement_token(client: ChainClient, settlement: Contract) -> Contract:
    """The token that this settlement takes, whoever deployed it."""
    address = str(await call_view(client, settlement, TOKEN)).lower()
    return Contract(TOKEN, address, shipped_artifacts()[TOKEN].abi)


async def credit_pool(client: ChainClient, settlement: Contract) -> SettlementPool:
    return SettlementPool(*await call_view(client, settlement, "pools", CREDIT_POOL_ID))
