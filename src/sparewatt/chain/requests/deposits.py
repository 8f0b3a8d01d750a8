"""Deposits into the settlement contract, and claims of what an address earned.

A deposit comes out of an account's own address whose key the network holds. A claim carries the Merkle proof of a
payout leaf; anyone may send it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparewatt.chain.money.settlement_contract import SETTLEMENT, claim_call
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.handler import CallBatch, RequestHandler
from sparewatt.core.errors import InvalidField
from sparewatt.evm.contract_abi import Contract
from sparewatt.ledger.payouts import PayoutService
from sparewatt.protocol.contracts.meta_transactions import Deposit
from sparewatt.store.chain_requests import ChainRequestRow
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
    settlement: Contract
    payouts: PayoutService

    async def build_calls(self, row: ChainRequestRow) -> CallBatch:
        proof = await self.payouts.proof(row.params.epoch, row.address)
        if proof is None:
            raise InvalidField(f"{row.address} is not in batch {row.params.epoch}.")
        return CallBatch((("claim", claim_call(self.settlement, proof)),))


def deposit_handlers(context: ChainRequestContext, payouts: PayoutService) -> dict[ChainRequestKind, RequestHandler]:
    return {
        ChainRequestKind.DEPOSIT: DepositHandler(context),
        ChainRequestKind.CLAIM: ClaimHandler(context.contracts[SETTLEMENT], payouts),
    }
