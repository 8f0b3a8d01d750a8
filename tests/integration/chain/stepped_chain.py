"""The real contracts on a real chain, books in a real Postgres, and the chain's process stepped by hand.

What the harnesses of the chain's tests share: `SteppedChain` drives rounds, sends as somebody with a wallet, and lets
chain time pass. Who has which account and asks for what is theirs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from sparewatt.accounts.custody import SECRET_BYTES, Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentStep, shipped_artifacts, shipped_plan
from sparewatt.chain.deployment import Deployment, send_directly
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import TOKEN, call_view, followed_contracts
from sparewatt.chain.money.settlement_worker import SettlementConfig, SettlementWorker, make_settlement_worker
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.senders import STUCK_S
from sparewatt.chain.signer import TransactionSigner
from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import ChainUnavailable
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.core.rng import seeded
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import ContractCall
from sparewatt.evm.transactions import contract_address
from sparewatt.leasing.lease_requests import LeaseRequestService
from sparewatt.protocol.contracts.match import Profile, ReputationSnapshot
from sparewatt.protocol.contracts.merkle import merkle_tree
from sparewatt.protocol.contracts.meta_transactions import VoteKey
from sparewatt.protocol.signing import SigningKey
from sparewatt.protocol.typed_message import TypedMessage, contract_domain, message_digest, struct_hash
from sparewatt.store.accounts import NewAccount
from sparewatt.store.database import Database
from sparewatt.store.request_params import OrderParams
from tests.integration.chain.setting import DEPLOYER, GUARDIAN, OPERATOR
from tests.order_terms import order_terms

DEPTH = 2
DOLLAR, DOLLAR_MICRO = Nano(10**9), 10**6
STAKER, VOTER = SigningKey(bytes(31) + b"\x31"), SigningKey(bytes(31) + b"\x32")
STAKE = 100 * DOLLAR_MICRO
ISSUER = SigningKey(bytes(31) + b"\x33")
"""Of a token that others use as well."""
CUSTODY = Custody(bytes(SECRET_BYTES), rng=seeded(7))
TERMS = order_terms()
_T = TypeVar("_T", bound="SteppedChain")


@dataclass(slots=True)
class SteppedChain:
    client: ChainClient
    database: Database
    contracts: Contracts
    follower: ChainFollower
    sender: OutboxSender
    worker: SettlementWorker
    chain_id: int

    rounds_max: ClassVar[int] = 100

    # rounds

    async def round(self) -> None:
        """As the process does it, and a block, as if a second had passed. A chain that is away comes back."""
        with suppress(ChainUnavailable):
            while await self.follower.step():
                pass
            await self.sender.step()
            while await self.worker.step():
                pass
            await self.client.request("evm_mine")

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        for _ in range(self.rounds_max):
            if await holds():
                return
            await self.round()
        raise AssertionError(f"after {self.rounds_max} rounds: {what}")

    # the world around

    async def send(self, call: ContractCall, key: SigningKey) -> None:
        """By somebody with a wallet of their own."""
        nonce = await self.client.next_nonce(key.address)
        receipt = await send_directly(self.client, call, key, nonce=nonce, chain_id=self.chain_id, clock=SystemClock())
        assert receipt.succeeded

    def signed(self, key: SigningKey, contract: str, message: TypedMessage) -> bytes:
        domain = contract_domain(chain_id=self.chain_id, contract=self.contracts[contract].address)
        return key.sign(message_digest(domain, message))

    async def pass_time(self, seconds: int) -> None:
        await self.client.request("evm_increaseTime", seconds)
        await self.client.request("evm_mine")

    async def post_snapshot(self, profiles: Sequence[Profile] = ()) -> None:
        """One validator and its table of providers, by default an empty one: orders can be made, and nobody bids."""
        token, stakes, tasks = (self.contracts[name] for name in (TOKEN, "stake_registry", "task_manager"))
        await self.send(token.encode_call("faucet", STAKER.address, STAKE), STAKER)
        await self.send(token.encode_call("approve", stakes.address, STAKE), STAKER)
        proof = self.signed(VOTER, "stake_registry", VoteKey(STAKER.address, VOTER.address))
        await self.send(stakes.encode_call("join", VOTER.address, proof, "http://127.0.0.1:1", STAKE), STAKER)
        await self.pass_time(10)
        await self.send(stakes.encode_call("activate", STAKER.address), STAKER)
        snapshot = ReputationSnapshot(1, 0, snapshot_root(profiles), len(profiles), bytes(32))
        votes = self.votes(snapshot)
        await self.send(tasks.encode_call("post_snapshot", *snapshot.values(), votes), STAKER)
        await self.client.request("anvil_mine", hex(DEPTH))

    def votes(self, message: TypedMessage) -> list[tuple[bytes, int]]:
        """Of the one validator, whose weight has not changed since it came."""
        return [(self.signed(VOTER, "task_manager", message), 0)]

    async def tokens_at(self, address: str) -> int:
        return int(await call_view(self.client, self.contracts[TOKEN], "balanceOf", address))

    # the database

    async def execute(self, statement: str, *values: object) -> None:
        async with self.database._pool.transaction() as connection:
            await connection.execute(statement, *values)

    async def address_of(self, account: AccountId) -> str:
        return await address_of(self.database, account)

    # orders

    @property
    def leases(self) -> LeaseRequestService:
        is_test_money = self.worker.roots.test_money
        return LeaseRequestService(self.database, SystemClock(), is_test_money=is_test_money, free_idle_slices=None)

    async def order_params(self) -> OrderParams:
        return OrderParams(TERMS, "0x" + "01" * 32, (await self.client.head()).unix_s + 86_400, 2)


def snapshot_root(profiles: Sequence[Profile]) -> bytes:
    return merkle_tree([struct_hash(profile) for profile in sorted(profiles, key=lambda each: each.provider)]).root


async def ensure_account(database: Database, account: AccountId) -> str:
    """Its address, whose key the network holds."""
    made = CUSTODY.make(account)
    new = NewAccount(account, account, chain_address=made.address, chain_key=made.sealed)
    await database.accounts.ensure_account(new)
    return await address_of(database, account)


async def address_of(database: Database, account: AccountId) -> str:
    row = await database.accounts.find_account(account)
    assert row is not None
    assert row.chain_address is not None
    return row.chain_address


async def _issue_token(client: ChainClient) -> str:
    """Once; its address."""
    if await client.next_nonce(ISSUER.address) == 0:
        call = ContractCall("", shipped_artifacts()[TOKEN].deploy_data([]))
        chain_id = (await client.identity()).chain_id
        await send_directly(client, call, ISSUER, nonce=0, chain_id=chain_id, clock=SystemClock())
    return contract_address(ISSUER.address, 0)


@asynccontextmanager
async def open_stepped(
    harness: type[_T],
    url: str,
    dsn: str,
    folder: Path,
    *,
    test_money: bool,
    plan: Sequence[DeploymentStep] | None = None,
    foreign_token: bool = False,
    senders: Sequence[SigningKey] = (),
    stuck_s: float = STUCK_S,
) -> AsyncIterator[_T]:
    """`foreign_token`: as on a public network, the token is there before our contracts are."""
    client, database, clock = ChainClient(url), await Database.connect(dsn), SystemClock()
    try:
        token, steps = await _issue_token(client) if foreign_token else None, plan or shipped_plan()
        deployment = Deployment(
            client,
            folder,
            plan=[step for step in steps if token is None or step.create != TOKEN],
            token=token,
            artifacts=shipped_artifacts(),
            deployer=DEPLOYER,
            operator=OPERATOR.address,
            guardian=GUARDIAN,
            clock=clock,
        )
        record = await deployment.ensure()
        contracts = await followed_contracts(client, record)
        held = database.pockets.held_addresses
        follower = ChainFollower(client, database.chain, contracts, start_block=record.start_block, held_addresses=held)
        await follower.begin()
        signer = TransactionSigner([OPERATOR, *senders])
        sender = OutboxSender(client, database.chain, signer, chain_id=record.chain_id, depth=DEPTH, stuck_s=stuck_s)
        config = SettlementConfig(
            record.chain_id,
            OPERATOR.address,
            DEPTH,
            test_money,
            record.chain_tag,
            tuple(key.address for key in senders),
            stuck_s,
        )
        worker = make_settlement_worker(
            client, database, contracts, config=config, custody=lambda: CUSTODY, clock=clock
        )
        yield harness(client, database, contracts, follower, sender, worker, record.chain_id)
    finally:
        await client.close()
        await database.close()
