"""Requests of accounts become transactions, once, and end as their last transaction does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from sparewatt.chain.contracts import Contracts
from sparewatt.chain.depositing import Depositing, NamedCall
from sparewatt.chain.model import hex_of
from sparewatt.chain.settlement import CREDITS, Claim, claim_call
from sparewatt.core.errors import ChainReverted, InvalidField
from sparewatt.core.limits import CHAIN_REQUESTS_AT_ONCE
from sparewatt.core.log import Log
from sparewatt.ledger.settlement import Settlement
from sparewatt.store.chain import ChainStore, OutboxState
from sparewatt.store.requests import OutboxCall, RequestKind, RequestRow, RequestState, RequestStore

_log = Log("sparewatt.chain")


@dataclass(frozen=True, slots=True)
class RequestDesk:
    store: ChainStore
    requests: RequestStore
    contracts: Contracts
    depositing: Depositing
    settlement: Settlement
    sender: str
    """Relays, and pays the gas."""

    async def step(self) -> None:
        """After final events were delivered: a request that is done is in the books."""
        for row in await self.requests.decided(limit=CHAIN_REQUESTS_AT_ONCE):
            await self._look_at(row)
        for row in await self.requests.asked(limit=CHAIN_REQUESTS_AT_ONCE):
            await self._decide(row)

    async def _look_at(self, row: RequestRow) -> None:
        """The last transaction works only if those before it did."""
        sent = await self.store.find(_business_id(row, row.kind.value))
        if sent is None:
            await self._fail(row, "the network changed to another chain meanwhile.")
        elif sent.state is OutboxState.FINAL:
            await self.requests.end(row.id, RequestState.DONE, tx=hex_of(sent.tx_hash or b""))
        elif sent.state in {OutboxState.REVERTED, OutboxState.REFUSED}:
            await self._fail(row, f"the contract says {sent.reason or 'no'}.")

    async def _decide(self, row: RequestRow) -> None:
        try:
            calls = await self._calls(row)
        except (InvalidField, ChainReverted) as error:
            await self._fail(row, error.message)
            return
        named = [OutboxCall(_business_id(row, name), call.to, call.data) for name, call in calls]
        await self.requests.decide(row.id, sender=self.sender, calls=named)

    async def _calls(self, row: RequestRow) -> list[NamedCall]:
        match row.kind:
            case RequestKind.DEPOSIT:
                return await self.depositing.calls(row)
            case RequestKind.CLAIM:
                return [(row.kind.value, claim_call(self.contracts, await self._claim(row)))]
            case _ as never:
                assert_never(never)

    async def _claim(self, row: RequestRow) -> Claim:
        proof = await self.settlement.proof(row.epoch or 0, row.address)
        if proof is None:
            raise InvalidField(f"{row.address} is not in batch {row.epoch}.")
        leaf = proof.leaf
        return Claim(CREDITS, proof.epoch, leaf.address, leaf.earned_micro, leaf.spent_micro, proof.index, proof.path)

    async def _fail(self, row: RequestRow, reason: str) -> None:
        _log.warning("chain_request_failed", request=row.id, why=reason)
        await self.requests.end(row.id, RequestState.FAILED, reason=reason)


def _business_id(row: RequestRow, name: str) -> str:
    return f"{row.id}:{name}"
