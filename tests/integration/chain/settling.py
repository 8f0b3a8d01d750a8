"""Settlement stepped by hand: a user who pays and an owner who earns, with addresses that the network holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparewatt.chain.contracts import DeploymentStep
from sparewatt.chain.money.settlement_contract import SETTLEMENT, TOKEN, SettlementPool, credit_pool
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.chart import credits_of
from sparewatt.ledger.payouts import PayoutService
from sparewatt.protocol.signing import SigningKey
from tests.integration.chain.stepped_chain import SteppedChain, ensure_account, open_stepped

USER, OWNER = AccountId("acc_user"), AccountId("acc_owner")


@dataclass(slots=True)
class Settling(SteppedChain):
    addresses: dict[AccountId, str] = field(default_factory=dict)

    async def deposit_by_wallet(self, address: str, units: int, key: SigningKey) -> None:
        token, settlement = self.contracts[TOKEN], self.contracts[SETTLEMENT]
        await self.send(token.encode_call("faucet", key.address, units), key)
        await self.send(token.encode_call("approve", settlement.address, units), key)
        await self.send(settlement.encode_call("deposit", address, units), key)

    async def credits_of(self, account: AccountId) -> Nano:
        name = credits_of(account)
        return (await self.database.ledger.balances([name]))[name]

    async def pool(self) -> SettlementPool:
        return await credit_pool(self.client, self.contracts[SETTLEMENT])

    @property
    def payouts(self) -> PayoutService:
        return PayoutService(self.database.payouts, clock=SystemClock())


@asynccontextmanager
async def open_settling(
    url: str,
    dsn: str,
    folder: Path,
    *,
    test_money: bool,
    plan: Sequence[DeploymentStep] | None = None,
    foreign_token: bool = False,
) -> AsyncIterator[Settling]:
    async with open_stepped(
        Settling, url, dsn, folder, test_money=test_money, plan=plan, foreign_token=foreign_token
    ) as settling:
        for account in (USER, OWNER):
            settling.addresses[account] = await ensure_account(settling.database, account)
        yield settling
