"""Everything of ours around one chain and one database, as the process puts it together, but stepped by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentRecord
from sparewatt.chain.deployment import Deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.outbox import OutboxSender, enqueue
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.evm.contract_abi import Contracts
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.chain import ChainStore, OutboxRow, OutboxState
from sparewatt.store.database import Database
from tests.integration.chain.echo import ARTIFACTS, PLAN, noted

DEPTH = 3
DEPLOYER, OPERATOR = SigningKey(bytes(31) + b"\x0d"), SigningKey(bytes(31) + b"\x0e")
GUARDIAN_KEY = SigningKey(bytes(31) + b"\x10")
GUARDIAN = GUARDIAN_KEY.address
ROUNDS_MAX = 400
Rows = list[tuple[object, ...]]


@dataclass(slots=True)
class Setting:
    client: ChainClient
    store: ChainStore
    contracts: Contracts
    record: DeploymentRecord
    follower: ChainFollower
    sender: OutboxSender
    deployment: Deployment
    dsn: str
    rows: list[OutboxRow] = field(default_factory=list)

    @property
    def echo(self) -> str:
        return self.contracts["echo"].address

    async def enqueue(self, number: int, *, business_id: str | None = None) -> str:
        business_id = business_id or f"note:{number}"
        await enqueue(self.store, noted(self.echo, number), business_id=business_id, sender=OPERATOR.address)
        return business_id

    async def round(self) -> None:
        """What the process does again and again, and a block, as if a second had passed.

        Like the process, it leaves a chain that does not answer in time to the next round.
        """
        with suppress(ChainUnavailable):
            await self.sender.step()
            await self.client.request("evm_mine")
            while await self.follower.step():
                pass

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(ROUNDS_MAX):
            if await holds():
                return
            await self.round()
        raise AssertionError(f"after {ROUNDS_MAX} rounds: {what}")

    async def until_final(self, *business_ids: str) -> None:
        async def are_final() -> bool:
            rows = [await self.store.find(each) for each in business_ids]
            return all(row is not None and row.state is OutboxState.FINAL for row in rows)

        await self.until(are_final, f"{business_ids} are not final")

    async def noted_on_chain(self) -> list[int]:
        """The numbers in the echo's logs, straight from the chain."""
        head = await self.client.head()
        return [int.from_bytes(log.data, "big") for log in await self.client.logs(0, head.number, [self.echo])]

    async def execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(statement)
        await connection.close()

    async def index_rows(self) -> Rows:
        connection = await asyncpg.connect(self.dsn)
        rows = await connection.fetch("SELECT * FROM chain_events ORDER BY block_number, log_index")
        await connection.close()
        return [tuple(row.values()) for row in rows]

    async def noted_in_index(self) -> list[int]:
        events = await self.store.events_after((-1, 0), up_to_block=10**9, names=["echo.Noted"], limit=10_000)
        return [event.args["number"] for event in events]


def deployment_of(client: ChainClient, folder: Path) -> Deployment:
    return Deployment(
        client,
        folder,
        plan=PLAN,
        artifacts=ARTIFACTS,
        deployer=DEPLOYER,
        operator=OPERATOR.address,
        guardian=GUARDIAN,
        clock=SystemClock(),
    )


@asynccontextmanager
async def open_setting(url: str, dsn: str, folder: Path) -> AsyncIterator[Setting]:
    client = ChainClient(url)
    database = await Database.connect(dsn)
    try:
        deployment = deployment_of(client, folder)
        record = await deployment.ensure()
        contracts = Contracts(ARTIFACTS, record.addresses)
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin()
        sender = OutboxSender(
            client, database.chain, TransactionSigner([OPERATOR]), chain_id=record.chain_id, depth=DEPTH
        )
        yield Setting(client, database.chain, contracts, record, follower, sender, deployment, dsn)
    finally:
        await client.close()
        await database.close()
