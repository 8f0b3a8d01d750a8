"""The real contracts on a real chain, with books in a real Postgres, and the chain's process stepped by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sparewatt.accounts.custody import SECRET_BYTES, Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts, shipped_artifacts, shipped_plan
from sparewatt.chain.deploy import Deployment
from sparewatt.chain.desk import Desk, DeskTerms, open_desk
from sparewatt.chain.follower import Follower
from sparewatt.chain.keys import Keys
from sparewatt.chain.model import Call
from sparewatt.chain.outbox import Sender
from sparewatt.chain.settlement import SETTLEMENT, TOKEN, Pool, credit_pool, view
from sparewatt.chain.waiting import send_and_wait
from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.ledger.chart import credits_of
from sparewatt.ledger.settlement import Settlement
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.database import Database
from sparewatt.store.people import NewAccount
from tests.integration.chain.setting import DEPLOYER, OPERATOR

DEPTH = 2
ROUNDS_MAX = 60
USER, OWNER = AccountId("acc_user"), AccountId("acc_owner")
CUSTODY = Custody(bytes(SECRET_BYTES), rng=seeded(7))


@dataclass(slots=True)
class Settling:
    client: ChainClient
    database: Database
    contracts: Contracts
    follower: Follower
    sender: Sender
    desk: Desk
    chain_id: int
    addresses: dict[AccountId, str]

    async def round(self) -> None:
        """As the process does it, and a block, as if a second had passed."""
        while await self.follower.step():
            pass
        await self.sender.step()
        while await self.desk.step():
            pass
        await self.client.ask("evm_mine")

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(ROUNDS_MAX):
            if await holds():
                return
            await self.round()
        raise AssertionError(f"after {ROUNDS_MAX} rounds: {what}")

    async def send(self, call: Call, key: SigningKey) -> None:
        """By somebody with a wallet of their own."""
        nonce = await self.client.next_nonce(key.address)
        gas_limit, fees = await self.client.gas_limit(call, sender=key.address), await self.client.fees()
        signed = Keys([key]).sign(
            call, sender=key.address, nonce=nonce, chain_id=self.chain_id, gas_limit=gas_limit, fees=fees
        )
        assert (await send_and_wait(self.client, signed, clock=SystemClock())).succeeded

    async def deposit_by_wallet(self, address: str, units: int, key: SigningKey) -> None:
        token, settlement = self.contracts[TOKEN], self.contracts[SETTLEMENT]
        await self.send(token.call("faucet", key.address, units), key)
        await self.send(token.call("approve", settlement.address, units), key)
        await self.send(settlement.call("deposit", address, units), key)

    async def credits_of(self, account: AccountId) -> Nano:
        name = credits_of(account)
        return (await self.database.books.balances([name]))[name]

    async def pool(self) -> Pool:
        return await credit_pool(self.client, self.contracts[SETTLEMENT])

    async def tokens_at(self, address: str) -> int:
        return int(await view(self.client, self.contracts[TOKEN], "balanceOf", address))

    @property
    def payouts(self) -> Settlement:
        return Settlement(self.database.payouts, clock=SystemClock())


@asynccontextmanager
async def open_settling(url: str, dsn: str, folder: Path, *, test_money: bool) -> AsyncIterator[Settling]:
    client, database, clock = ChainClient(url), await Database.connect(dsn), SystemClock()
    try:
        operator = OPERATOR.address
        deployment = Deployment(
            client,
            folder,
            plan=shipped_plan(),
            artifacts=shipped_artifacts(),
            deployer=DEPLOYER,
            operator=operator,
            clock=clock,
        )
        record = await deployment.ensure()
        contracts = deployment.contracts(record)
        follower = Follower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin()
        sender = Sender(client, database.chain, Keys([OPERATOR]), chain_id=record.chain_id, depth=DEPTH)
        terms = DeskTerms(record.chain_id, operator, DEPTH, test_money)
        desk = open_desk(client, database, contracts, terms=terms, custody=lambda: CUSTODY, clock=clock)
        addresses = {account: await _make_account(database, account) for account in (USER, OWNER)}
        yield Settling(client, database, contracts, follower, sender, desk, record.chain_id, addresses)
    finally:
        await client.close()
        await database.close()


async def _make_account(database: Database, account: AccountId) -> str:
    made = CUSTODY.make(account)
    await database.people.ensure_account(
        NewAccount(account, account, chain_address=made.address, chain_key=made.sealed)
    )
    found = await database.people.find_account(account)
    assert found is not None
    assert found.chain_address is not None
    return found.chain_address
