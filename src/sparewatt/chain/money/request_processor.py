"""Requests of accounts become transactions, once, and end as their last transaction does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from sparewatt.chain.contracts import Contracts
from sparewatt.chain.model import hex_of
from sparewatt.chain.money.deposit_call_builder import DepositCallBuilder, NamedCall
from sparewatt.chain.money.settlement_contract import CREDIT_POOL_ID, SettlementClaim, claim_call
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.limits import CHAIN_REQUESTS_AT_ONCE
from sparewatt.core.log import Logger
from sparewatt.ledger.payouts import PayoutService
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.chain_requests import (
    ChainRequestKind,
    ChainRequestRow,
    ChainRequestState,
    ChainRequestStore,
    OutboxCall,
)

_log = Logger("sparewatt.chain")


@dataclass(frozen=True, slots=True)
class ChainRequestProcessor:
    store: ChainStore
    requests: ChainRequestStore
    contracts: Contracts
    deposit_calls: DepositCallBuilder
    payouts: PayoutService
    sender: str
    """Relays, and pays the gas."""

    async def step(self) -> None:
        """After final events were delivered: a request that is done is in the books."""
        for row in await self.requests.list_decided(limit=CHAIN_REQUESTS_AT_ONCE):
            await self._check_outcome(row)
        for row in await self.requests.list_asked(limit=CHAIN_REQUESTS_AT_ONCE):
            await self._enqueue(row)

    async def _check_outcome(self, row: ChainRequestRow) -> None:
        """The last transaction works only if those before it did."""
        sent = await self.store.find(_business_id(row, row.kind.value))
        if sent is None:
            await self._fail(row, "the network changed to another chain meanwhile.")
        elif sent.state is OutboxState.FINAL:
            await self.requests.finish(row.id, ChainRequestState.DONE, tx=hex_of(sent.tx_hash or b""))
        elif sent.state in {OutboxState.REVERTED, OutboxState.REFUSED}:
            await self._fail(row, f"the contract says {sent.reason or 'no'}.")

    async def _enqueue(self, row: ChainRequestRow) -> None:
        try:
            calls = await self._calls(row)
        except (InvalidField, ChainReverted) as error:
            await self._fail(row, error.message)
            return
        named = [OutboxCall(_business_id(row, name), call.to, call.data) for name, call in calls]
        await self.requests.enqueue_calls(row.id, sender=self.sender, calls=named)

    async def _calls(self, row: ChainRequestRow) -> list[NamedCall]:
        match row.kind:
            case ChainRequestKind.DEPOSIT:
                return await self.deposit_calls.build_calls(row)
            case ChainRequestKind.CLAIM:
                return [(row.kind.value, claim_call(self.contracts, await self._claim(row)))]
            case _ as never:
                assert_never(never)

    async def _claim(self, row: ChainRequestRow) -> SettlementClaim:
        proof = await self.payouts.proof(row.epoch or 0, row.address)
        if proof is None:
            raise InvalidField(f"{row.address} is not in batch {row.epoch}.")
        leaf = proof.leaf
        return SettlementClaim(
            CREDIT_POOL_ID, proof.epoch, leaf.address, leaf.earned_micro, leaf.spent_micro, proof.index, proof.path
        )

    async def _fail(self, row: ChainRequestRow, reason: str) -> None:
        _log.warning("chain_request_failed", request=row.id, why=reason)
        await self.requests.finish(row.id, ChainRequestState.FAILED, reason=reason)


def _business_id(row: ChainRequestRow, name: str) -> str:
    return f"{row.id}:{name}"
