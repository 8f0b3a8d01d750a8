"""Deposits into the settlement contract, and claims of what an address earned.

A deposit comes out of an account's own address whose key the network holds. A claim carries the Merkle proof of a
payout leaf; anyone may send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparewatt.chain.money.settlement_contract import SETTLEMENT, claim_args, claim_call
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.chain.requests.providers import provider_key
from sparewatt.core.errors import InvalidField
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.payouts import PayoutLeafProof, PayoutService
from sparewatt.protocol.contracts.meta_transactions import ClaimToBond, Deposit
from sparewatt.store.chain_requests import ChainRequestRow
from sparewatt.store.payouts import CREDIT_POOL_ID, REWARD_POOL_ID
from sparewatt.store.request_params import ChainRequestKind

DEPOSIT_GAS = 400_000
"""Three times what it takes with the development token; fixed, so that permit and deposit get into one block."""


@dataclass(frozen=True, slots=True)
class DepositHandler(RequestHandler):
    context: ChainRequestContext

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        context = self.context
        settlement, key = context.contracts[SETTLEMENT], await context.account_key(row)
        payment = await context.payment_calls(key, spender=settlement, micro=row.micro)
        deadline = await context.deadline()
        nonce = await context.next_nonce(settlement, row.address)
        message = Deposit(row.address, row.address, row.micro, nonce, deadline)
        args = (row.address, row.address, row.micro, deadline, context.sign(key, settlement, message))
        call = replace(settlement.encode_call("deposit_with_signature", *args), gas_limit=DEPOSIT_GAS)
        return CallBatch((*payment, ("deposit", call)))


@dataclass(frozen=True, slots=True)
class ClaimHandler(RequestHandler):
    """Pays what an address earned, or its rewards, to it; or into the bond of the provider at it."""

    context: ChainRequestContext
    pools: Mapping[int, PayoutService]

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        settlement, pool_id = self.context.contracts[SETTLEMENT], row.params.pool
        proof = await leaf_proof(self.pools[pool_id], row)
        if row.params.to_bond:
            return CallBatch((("claim", await self._to_bond(settlement, row, proof)),))
        return CallBatch((("claim", claim_call(settlement, proof, pool_id=pool_id)),))

    async def _to_bond(self, settlement: Contract, row: ChainRequestRow, proof: PayoutLeafProof) -> ContractCall:
        key, deadline = await provider_key(self.context, row), await self.context.deadline()
        nonce = await self.context.next_nonce(settlement, row.address)
        message = ClaimToBond(row.address, row.params.pool, proof.leaf.earned_micro, nonce, deadline)
        args = (*claim_args(proof, pool_id=row.params.pool), deadline, self.context.sign(key, settlement, message))
        return settlement.encode_call("claim_to_bond_with_signature", *args)


async def leaf_proof(payouts: PayoutService, row: ChainRequestRow) -> PayoutLeafProof:
    """Raises InvalidField if the address is not in the batch."""
    proof = await payouts.proof(row.params.epoch, row.address)
    if proof is None:
        raise InvalidField(f"{row.address} is not in batch {row.params.epoch}.")
    return proof


def deposit_handlers(
    context: ChainRequestContext, payouts: PayoutService, rewards: PayoutService
) -> dict[ChainRequestKind, RequestHandler]:
    return {
        ChainRequestKind.DEPOSIT: DepositHandler(context),
        ChainRequestKind.CLAIM: ClaimHandler(context, {CREDIT_POOL_ID: payouts, REWARD_POOL_ID: rewards}),
    }
