"""The chain's process: deploys if asked, then follows, sends and delivers until it is stopped.

It is the only one that holds the operator's key and the only one that loads web3. A chain or a database that is away is
waited for; nothing is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack

from sparewatt.accounts.custody import Custody, read_secret, read_secret_file
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts, DeploymentRecord, read_record, shipped_artifacts, shipped_plan
from sparewatt.chain.deployment import Deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.money.settlement_contract import SETTLEMENT
from sparewatt.chain.money.settlement_worker import SettlementConfig, SettlementWorker, make_settlement_worker
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.settings import ChainSettings, check_chain_url
from sparewatt.chain.signer import DEPLOYER_KEY, OPERATOR_KEY, TransactionSigner, load_or_make_key
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import ChainRefused, ChainUnavailable, ContractsMissing, StoreUnavailable
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.signals import stop_event
from sparewatt.store.database import Database

_log = Logger("sparewatt.chain")
BLOCK_S = 1.0
RETRY_S = 1.0


async def run_chain(settings: ChainSettings) -> None:
    """Work until SIGTERM or SIGINT. Raises StartupError, WrongChain or ContractsMissing for what a person must mend."""
    stop = stop_event()
    clock, rng = SystemClock(), SystemRng()
    make_private_dir(settings.data)
    async with AsyncExitStack() as stack:
        client = ChainClient(check_chain_url(settings.chain_url))
        stack.push_async_callback(client.close)
        database = await Database.connect(settings.database_url)
        stack.push_async_callback(database.close)
        worker = ChainWorker(settings, client, database, clock=clock, rng=rng)
        while not stop.is_set():
            await worker.work(stop)
            await _pause(stop, RETRY_S)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


class ChainWorker:
    """All that is done about one chain, in rounds."""

    def __init__(
        self, settings: ChainSettings, client: ChainClient, database: Database, *, clock: Clock, rng: Rng
    ) -> None:
        self._settings = settings
        self._client = client
        self._database = database
        self._clock = clock
        self._operator = load_or_make_key(settings.data / OPERATOR_KEY, rng=rng)
        self._deployment = self._make_deployment(rng) if settings.deploy else None
        self._next_block_s = clock.now_s()
        self._rng = rng

    async def work(self, stop: asyncio.Event) -> None:
        """Rounds until asked to stop, or until the chain or the database is away."""
        try:
            follower, sender, desk = await self._begin()
            while not stop.is_set():
                seen = follower.reorg_count
                more = await self._round(follower, sender, desk)
                if follower.reorg_count != seen:
                    return  # it may have lost even our contracts: begin again
                await _pause(stop, 0 if more else self._settings.poll_s)
        except (ChainUnavailable, ChainRefused, StoreUnavailable) as error:
            _log.warning("chain_work_postponed", why=error.code)

    async def _begin(self) -> tuple[ChainFollower, OutboxSender, SettlementWorker | None]:
        record = await self._deployment.ensure() if self._deployment else self._read_record()
        contracts = Contracts(shipped_artifacts(), {name: at.address for name, at in record.contracts.items()})
        store = self._database.chain
        follower = ChainFollower(self._client, store, contracts, start_block=record.start_block)
        await follower.begin()
        if self._settings.ready_file is not None:
            await asyncio.to_thread(write_private, self._settings.ready_file, b"ready\n")
        keys, depth = TransactionSigner([self._operator]), self._settings.depth
        sender = OutboxSender(self._client, store, keys, chain_id=record.chain_id, depth=depth)
        return follower, sender, self._settlement_worker(contracts, chain_id=record.chain_id)

    async def _round(self, follower: ChainFollower, sender: OutboxSender, desk: SettlementWorker | None) -> bool:
        more = await follower.step()
        busy = await sender.step()
        if desk is not None:
            more |= await desk.step()
        if self._settings.mine and self._clock.now_s() >= self._next_block_s:
            await self._mine_if_due(busy=busy)
        return more

    async def _mine_if_due(self, *, busy: bool) -> None:
        """A block where a transaction waits for one, or an event for those on top of it."""
        if busy or await self._database.chain.has_fresh_events(depth=self._settings.depth):
            await self._client.request("evm_mine")
            self._next_block_s = self._clock.now_s() + BLOCK_S

    def _settlement_worker(self, contracts: Contracts, *, chain_id: int) -> SettlementWorker | None:
        """None where there is no settlement contract."""
        if SETTLEMENT not in contracts:
            return None
        return make_settlement_worker(
            self._client,
            self._database,
            contracts,
            terms=SettlementConfig(chain_id, self._operator.address, self._settings.depth, self._settings.test_money),
            custody=self._custody,
            clock=self._clock,
        )

    def _custody(self) -> Custody | None:
        """None without the network's secret. Raises StartupError for one that is damaged."""
        settings = self._settings
        if settings.secret is not None:
            return Custody(read_secret(settings.secret), rng=self._rng)
        if settings.secret_file is not None and settings.secret_file.exists():
            return Custody(read_secret_file(settings.secret_file), rng=self._rng)
        return None

    def _read_record(self) -> DeploymentRecord:
        record = read_record(self._settings.data)
        if record is None:
            raise ContractsMissing("Nothing is deployed on this chain yet. 'sparewatt chain deploy' does it.")
        return record

    def _make_deployment(self, rng: Rng) -> Deployment:
        return Deployment(
            self._client,
            self._settings.data,
            plan=shipped_plan(),
            artifacts=shipped_artifacts(),
            deployer=load_or_make_key(self._settings.data / DEPLOYER_KEY, rng=rng),
            operator=self._operator.address,
            clock=self._clock,
        )
