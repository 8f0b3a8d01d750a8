"""Covers the pool of contracts that replaced others: on a chain of test money the faucet pays for credits of before."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparewatt.chain.client import ChainClient
from sparewatt.chain.money.settlement_contract import call_view, credit_pool, settlement_token
from sparewatt.chain.outbox import enqueue
from sparewatt.evm.contract_abi import Contract
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.chain_audit import uncovered_nano
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.store.database import Database
from sparewatt.store.payouts import CREDIT_POOL_ID

PREFIX = "cover:"


async def funding_calls(
    client: ChainClient, settlement: Contract, *, operator: str, units: int, pool_id: int = CREDIT_POOL_ID
) -> list[tuple[str, ContractCall]]:
    """The faucet gives to the operator, who funds the pool. At most what one call of the faucet gives."""
    token = await settlement_token(client, settlement)
    units = min(units, int(await call_view(client, token, "FAUCET_MAX")))
    return [
        ("faucet", token.encode_call("faucet", operator, units)),
        ("approve", token.encode_call("approve", settlement.address, units)),
        ("fund", settlement.encode_call("fund", pool_id, units)),
    ]


@dataclass(slots=True)
class PoolCover:
    client: ChainClient
    database: Database
    settlement: Contract
    operator: str
    test_money: bool
    _is_done: bool = field(default=False, init=False)

    async def step(self) -> None:
        """Once after each start-over; until then the books owe more than the pool has."""
        if self._is_done or not self.test_money:
            return
        if not await self.database.chain_restarts.awaits_cover():
            self._is_done = True
        elif not await self.database.chain.has_open(PREFIX):
            await self._cover()

    async def _cover(self) -> None:
        pool = await credit_pool(self.client, self.settlement)
        owe = await self.database.chain_audit.books_owe()
        lacking = uncovered_nano(owe, pool_micro=pool.funded - pool.paid)
        if lacking <= 0:
            await self.database.chain_restarts.note_covered()
            return
        units = -(-lacking // NANO_PER_MICRO)
        calls = await funding_calls(self.client, self.settlement, operator=self.operator, units=units)
        for name, call in calls:
            business_id = f"{PREFIX}{pool.funded}:{name}"
            await enqueue(self.database.chain, call, business_id=business_id, sender=self.operator)
