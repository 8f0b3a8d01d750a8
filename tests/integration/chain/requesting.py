"""The real contracts, requests of many accounts and several sending keys; the chain's process is stepped by hand.

`python -m … URL DSN FOLDER SEED KILLS` is that process, killed (SIGKILL) at a random operation and started again, so
many times. Each life is a fork: the imports are done once.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparewatt.accounts.custody import SECRET_BYTES, Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import shipped_artifacts, shipped_contracts, shipped_plan
from sparewatt.chain.deployment import Deployment, send_directly
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import TOKEN, call_view
from sparewatt.chain.money.settlement_worker import SettlementConfig, SettlementWorker, make_settlement_worker
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.leasing.lease_requests import LeaseRequestService
from sparewatt.ledger.chart import GRANTS, credits_of, promo_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import ReputationSnapshot
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import contract_domain, message_digest
from sparewatt.store.accounts import NewAccount
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.database import Database
from sparewatt.store.ledger import Transfer
from sparewatt.store.request_params import OrderParams
from tests.integration.chain.setting import DEPLOYER, GUARDIAN, OPERATOR
from tests.order_terms import order_terms

DEPTH = 2
ROUNDS_MAX = 300
STUCK_S = 0.5
DOLLAR, DOLLAR_MICRO = 10**9, 10**6
SENDERS = tuple(SigningKey(bytes(31) + bytes([0x20 + number])) for number in range(2))
STAKER, VOTER = SigningKey(bytes(31) + b"\x31"), SigningKey(bytes(31) + b"\x32")
STAKE = 100 * DOLLAR_MICRO
CUSTODY = Custody(bytes(SECRET_BYTES), rng=seeded(11))
OPERATIONS_MAX = 150
"""Of one life: reads and writes of the database, and requests to the chain's node."""
TERMS = order_terms()


@dataclass(slots=True)
class Requesting:
    client: ChainClient
    database: Database
    contracts: Contracts
    follower: ChainFollower
    sender: OutboxSender
    worker: SettlementWorker
    chain_id: int

    @property
    def leases(self) -> LeaseRequestService:
        return LeaseRequestService(self.database, SystemClock(), is_test_money=True, free_idle_slices=None)

    async def round(self) -> None:
        """As the process does it, and a block, as if a second had passed."""
        with suppress(ChainUnavailable):
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

    async def until_ended(self, ids: Sequence[str]) -> list[ChainRequestRow]:
        async def have_ended() -> bool:
            return all(row.state in {ChainRequestState.DONE, ChainRequestState.FAILED} for row in await self.rows(ids))

        await self.until(have_ended, "some have not ended")
        return await self.rows(ids)

    async def rows(self, ids: Sequence[str]) -> list[ChainRequestRow]:
        found = await asyncio.gather(*(self.database.chain_requests.find(each) for each in ids))
        return [row for row in found if row is not None]

    async def make_account(self, number: int, *, promo: int = 0) -> AccountId:
        account, made = AccountId(f"acc_{number}"), CUSTODY.make(AccountId(f"acc_{number}"))
        new = NewAccount(account, account, chain_address=made.address, chain_key=made.sealed)
        await self.database.accounts.ensure_account(new)
        if promo:
            lines = ((promo_of(account), promo), (GRANTS, -promo))
            unix_s = SystemClock().unix_s()
            await self.database.ledger.post_transfer(
                Transfer(f"grant:{account}", "grant", account, Nano(promo), lines, unix_s)
            )
        return account

    async def address_of(self, account: AccountId) -> str:
        row = await self.database.accounts.find_account(account)
        assert row is not None
        assert row.chain_address is not None
        return row.chain_address

    async def order_params(self, spec: int = 1) -> OrderParams:
        expires_at = (await self.client.head()).unix_s + 3_600
        return OrderParams(TERMS, "0x" + spec.to_bytes(32, "big").hex(), expires_at, 2)

    async def order(self, account: AccountId, reference: str, *, deposit_micro: int = DOLLAR_MICRO) -> str:
        asked = await self.order_params()
        row = await self.leases.order(account, asked, deposit_micro=deposit_micro, reference=reference)
        return row.id

    async def balances(self, account: AccountId) -> tuple[Nano, Nano]:
        """Credits that were paid for, and those that were given."""
        names = [credits_of(account), promo_of(account)]
        found = await self.database.ledger.balances(names)
        return found[names[0]], found[names[1]]

    async def tokens_at(self, address: str) -> int:
        return int(await call_view(self.client, self.contracts[TOKEN], "balanceOf", address))

    async def events(self, *names: str) -> list[ChainEvent]:
        return await self.database.chain.events_after((-1, 0), up_to_block=10**9, names=names, limit=10_000)

    async def send(self, call: ContractCall, key: SigningKey) -> None:
        nonce = await self.client.next_nonce(key.address)
        receipt = await send_directly(self.client, call, key, nonce=nonce, chain_id=self.chain_id, clock=SystemClock())
        assert receipt.succeeded

    async def post_snapshot(self) -> None:
        """One validator and an empty table of providers: orders can be made, and nobody bids."""
        token, stakes, tasks = (self.contracts[name] for name in (TOKEN, "stake_registry", "task_manager"))
        await self.send(token.encode_call("faucet", STAKER.address, STAKE), STAKER)
        await self.send(token.encode_call("approve", stakes.address, STAKE), STAKER)
        proof = self._signed(VOTER, stakes.address, VoteKey(STAKER.address, VOTER.address))
        await self.send(stakes.encode_call("join", VOTER.address, proof, "http://127.0.0.1:1", STAKE), STAKER)
        await self.pass_time(10)
        await self.send(stakes.encode_call("activate", STAKER.address), STAKER)
        vote = self._signed(VOTER, tasks.address, ReputationSnapshot(1, 0, bytes(32), 0, bytes(32)))
        call = tasks.encode_call("post_snapshot", 1, 0, bytes(32), 0, bytes(32), [(vote, 0)])
        await self.send(call, STAKER)

    async def pass_time(self, seconds: int) -> None:
        await self.client.request("evm_increaseTime", seconds)
        await self.client.request("evm_mine")

    def _signed(self, key: SigningKey, contract: str, message: Any) -> bytes:
        return key.sign(message_digest(contract_domain(chain_id=self.chain_id, contract=contract), message))


@asynccontextmanager
async def open_requesting(url: str, dsn: str, folder: Path) -> AsyncIterator[Requesting]:
    client, database, clock = ChainClient(url), await Database.connect(dsn), SystemClock()
    try:
        deployment = Deployment(
            client,
            folder,
            plan=shipped_plan(),
            artifacts=shipped_artifacts(),
            deployer=DEPLOYER,
            operator=OPERATOR.address,
            guardian=GUARDIAN,
            clock=clock,
        )
        record = await deployment.ensure()
        contracts = shipped_contracts(record)
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block)
        await follower.begin()
        signer = TransactionSigner([OPERATOR, *SENDERS])
        sender = OutboxSender(client, database.chain, signer, chain_id=record.chain_id, depth=DEPTH, stuck_s=STUCK_S)
        config = SettlementConfig(
            record.chain_id,
            OPERATOR.address,
            DEPTH,
            test_money=True,
            chain_tag=record.chain_tag,
            senders=tuple(key.address for key in SENDERS),
            stuck_s=STUCK_S,
        )
        worker = make_settlement_worker(
            client, database, contracts, config=config, custody=lambda: CUSTODY, clock=clock
        )
        yield Requesting(client, database, contracts, follower, sender, worker, record.chain_id)
    finally:
        await client.close()
        await database.close()


# the process that is killed


def kill_after(operations: int) -> None:
    """Count every operation of this process, and end it without warning at the last."""
    left = operations

    def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            is_after = left % 2 == 0
            if left <= 0 and not is_after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = await method(*args, **kwargs)
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return do

    for owner, names in ((ConnectionPool, ("rows", "row", "value", "execute")), (ChainClient, ("_await_reply",))):
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))


async def live(url: str, dsn: str, folder: str, operations: int) -> None:
    async with open_requesting(url, dsn, Path(folder)) as requesting:
        kill_after(operations)
        for _ in range(ROUNDS_MAX):
            await requesting.round()


def main(url: str, dsn: str, folder: str, seed: str, kills: str) -> None:
    rng = random.Random(int(seed))  # noqa: S311 (repeatable on purpose)
    for _ in range(int(kills)):
        operations = rng.randint(1, OPERATIONS_MAX)
        pid = os.fork()
        if pid == 0:
            asyncio.run(live(url, dsn, folder, operations))
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            sys.exit("a life ended by itself")


if __name__ == "__main__":
    main(*sys.argv[1:])
