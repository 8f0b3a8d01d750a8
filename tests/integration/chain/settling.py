"""The real contracts on a real chain, with books in a real Postgres, and the chain's process stepped by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sparewatt.accounts.custody import SECRET_BYTES, Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentStep, shipped_artifacts, shipped_contracts, shipped_plan
from sparewatt.chain.deployment import Deployment, send_directly
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import SETTLEMENT, TOKEN, SettlementPool, call_view, credit_pool
from sparewatt.chain.money.settlement_worker import SettlementConfig, SettlementWorker, make_settlement_worker
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.ledger.chart import credits_of
from sparewatt.ledger.payouts import PayoutService
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.accounts import NewAccount
from sparewatt.store.database import Database
from tests.integration.chain.setting import DEPLOYER, GUARDIAN, OPERATOR

DEPTH = 2
ROUNDS_MAX = 80
USER, OWNER = AccountId("acc_user"), AccountId("acc_owner")
CUSTODY = Custody(bytes(SECRET_BYTES), rng=seeded(7))


@dataclass(slots=True)
class Settling:
    client: ChainClient
    database: Database
    contracts: Contracts
    follower: ChainFollower
    sender: OutboxSender
    worker: SettlementWorker
    chain_id: int
    addresses: dict[AccountId, str]

    async def round(self) -> None:
        """As the process does it, and a block, as if a second had passed."""
        while await self.follower.step():
            pass
        await self.sender.step()
        while await self.worker.step():
            pass
        await self.client.request("evm_mine")

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(ROUNDS_MAX):
            if await holds():
                return
            await self.round()
        raise AssertionError(f"after {ROUNDS_MAX} rounds: {what}")

    async def send(self, call: ContractCall, key: SigningKey) -> None:
        """By somebody with a wallet of their own."""
        nonce = await self.client.next_nonce(key.address)
        receipt = await send_directly(self.client, call, key, nonce=nonce, chain_id=self.chain_id, clock=SystemClock())
        assert receipt.succeeded

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

    async def tokens_at(self, address: str) -> int:
        return int(await call_view(self.client, self.contracts[TOKEN], "balanceOf", address))

    @property
    def payouts(self) -> PayoutService:
        return PayoutService(self.database.payouts, clock=SystemClock())


@asynccontextmanager
async def open_settling(
    url: str, dsn: str, folder: Path, *, test_money: bool, plan: Sequence[DeploymentStep] | None = None
) -> AsyncIterator[Settling]:
    client, database, clock = ChainClient(url), await Database.connect(dsn), SystemClock()
    try:
        operator = OPERATOR.address
        deployment = Deployment(
            client,
            folder,
            plan=plan or shipped_plan(),
            artifacts=shipped_artifacts(),
            deployer=DEPLOYER,
            operator=operator,
            guardian=GUARDIAN,
            clock=clock,
        )
        record = await deployment.ensure()
        contracts = shipped_contracts(record)
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin()
        sender = OutboxSender(
            client, database.chain, TransactionSigner([OPERATOR]), chain_id=record.chain_id, depth=DEPTH
        )
        config = SettlementConfig(record.chain_id, operator, DEPTH, test_money, record.chain_tag)
        worker = make_settlement_worker(
            client, database, contracts, config=config, custody=lambda: CUSTODY, clock=clock
        )
        addresses = {account: await _make_account(database, account) for account in (USER, OWNER)}
        yield Settling(client, database, contracts, follower, sender, worker, record.chain_id, addresses)
    finally:
        await client.close()
        await database.close()


async def _make_account(database: Database, account: AccountId) -> str:
    made = CUSTODY.make(account)
    await database.accounts.ensure_account(
        NewAccount(account, account, chain_address=made.address, chain_key=made.sealed)
    )
    found = await database.accounts.find_account(account)
    assert found is not None
    assert found.chain_address is not None
    return found.chain_address
