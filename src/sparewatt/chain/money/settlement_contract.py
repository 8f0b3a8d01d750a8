"""The settlement contract and its token: names, views and calls. What they mean for an account is the ledger's part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentRecord, shipped_artifacts, shipped_contracts
from sparewatt.core.errors import ChainRefused
from sparewatt.evm.contract_abi import Contract, Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.payouts import PayoutLeafProof
from sparewatt.store.payouts import CREDIT_POOL_ID

SETTLEMENT, TOKEN = "settlement", "token"


@dataclass(frozen=True, slots=True)
class SettlementPool:
    """In the token's unit: paid <= promised <= funded."""

    funded: int
    promised: int
    paid: int
    epoch: int


def claim_args(proof: PayoutLeafProof, *, pool_id: int) -> tuple[object, ...]:
    """What every kind of claim begins with."""
    entry = (proof.leaf.address, proof.leaf.earned_micro, proof.leaf.spent_micro)
    return pool_id, proof.epoch, entry, proof.index, list(proof.path)


def claim_call(settlement: Contract, proof: PayoutLeafProof, *, pool_id: int = CREDIT_POOL_ID) -> ContractCall:
    """Anyone may send it: the money goes to the address that earned it."""
    return settlement.encode_call("claim", *claim_args(proof, pool_id=pool_id))


def record_spent_call(settlement: Contract, proof: PayoutLeafProof) -> ContractCall:
    """Show what an account has spent in all. Anyone may send it."""
    entry = (proof.leaf.address, proof.leaf.earned_micro, proof.leaf.spent_micro)
    return settlement.encode_call("record_spent", proof.epoch, entry, proof.index, list(proof.path))


async def call_view(
    client: ChainClient, contract: Contract, function: str, *args: object, at_block: int | None = None
) -> Any:
    """Raises ChainRefused if there is no contract: a local chain may have lost its last second."""
    data = await client.call(contract.encode_call(function, *args), at_block=at_block)
    if not data:
        raise ChainRefused(f"The chain has no contract {contract.name!r} at {contract.address} right now.")
    return contract.decode_result(function, data, n_args=len(args))


async def settlement_token(client: ChainClient, settlement: Contract) -> Contract:
    """The token that this settlement contract takes, also where we did not deploy it."""
    address = str(await call_view(client, settlement, TOKEN)).lower()
    return Contract(TOKEN, address, shipped_artifacts()[TOKEN].abi)


async def followed_contracts(client: ChainClient, record: DeploymentRecord) -> Contracts:
    """Ours, and the token that they take: of one that we did not deploy, transfers of held addresses are followed."""
    contracts = shipped_contracts(record)
    if SETTLEMENT not in contracts or TOKEN in contracts:
        return contracts
    token = await settlement_token(client, contracts[SETTLEMENT])
    return Contracts(shipped_artifacts(), {**record.addresses, TOKEN: token.address}, foreign={TOKEN})


async def settlement_pool(
    client: ChainClient, settlement: Contract, pool_id: int, *, at_block: int | None = None
) -> SettlementPool:
    return SettlementPool(*await call_view(client, settlement, "pools", pool_id, at_block=at_block))


async def credit_pool(client: ChainClient, settlement: Contract, *, at_block: int | None = None) -> SettlementPool:
    return await settlement_pool(client, settlement, CREDIT_POOL_ID, at_block=at_block)
