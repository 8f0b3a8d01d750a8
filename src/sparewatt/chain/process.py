"""The chain's process: deploys contracts if configured to, then indexes, sends and settles in rounds.

It alone holds the operator's key and loads web3. If the chain or the database is unavailable it waits and retries.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from sparewatt.accounts.custody import Custody, read_secret, read_secret_file
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import DeploymentRecord, get_current_record, shipped_plan
from sparewatt.chain.deployment import shipped_deployment
from sparewatt.chain.follower import ChainFollower
from sparewatt.chain.market.market_worker import STAKES, MarketWorker, make_market_worker
from sparewatt.chain.money.settlement_contract import SETTLEMENT, followed_contracts
from sparewatt.chain.money.settlement_worker import SettlementConfig, SettlementWorker, make_settlement_worker
from sparewatt.chain.outbox import OutboxSender
from sparewatt.chain.restart import start_over_if_outdated
from sparewatt.chain.senders import SenderPool
from sparewatt.chain.settings import ChainSettings
from sparewatt.chain.signer import OPERATOR_KEY, TransactionSigner, load_or_make_key, sender_key_name
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable, ContractsOutdated, StoreUnavailable
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.evm.chain_url import check_chain_url
from sparewatt.evm.contract_abi import Contracts
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.signals import stop_event
from sparewatt.store.database import Database

_log = Logger("sparewatt.chain")
BLOCK_S = 1.0
"""Between two blocks that confirm others on a local chain, where each transaction has its own block at once."""
BUSY_S = 0.05
"""Between two rounds while a local chain has something to confirm."""
RETRY_S = 1.0
STARTED_OVER = b"started over\n"
"""In the ready file: the contracts were of another release."""
WEI_PER_GWEI = 10**9


async def run_chain(settings: ChainSettings) -> None:
    """Work until SIGTERM or SIGINT. Raises StartupError, WrongChain or ContractsMissing for what a person must mend."""
    stop = stop_event()
    make_private_dir(settings.data)
    async with AsyncExitStack() as stack:
        client = ChainClient(check_chain_url(settings.chain_url))
        stack.push_async_callback(client.close)
        database = await Database.connect(settings.database_url)
        stack.push_async_callback(database.close)
        worker = ChainWorker(settings, client, database, clock=SystemClock(), rng=SystemRng())
        while not stop.is_set():
            await worker.work(stop)
            await _pause(RETRY_S, stop)


def read_saved_block(path: Path | None) -> int | None:
    """None without a file. A chain whose file is missing or damaged has saved nothing that may be relied on."""
    if path is None:
        return None
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):
        return -1


async def _pause(seconds: float, *events: asyncio.Event) -> None:
    """That long at most, until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class ChainWorker:
    """Follower, outbox and settlement of one chain, in rounds."""

    def __init__(
        self, settings: ChainSettings, client: ChainClient, database: Database, *, clock: Clock, rng: Rng
    ) -> None:
        self._settings = settings
        self._client = client
        self._database = database
        self._clock = clock
        self._rng = rng
        self._operator = load_or_make_key(settings.data / OPERATOR_KEY, rng=rng)
        numbers = range(1, settings.senders + 1)
        self._senders = [load_or_make_key(settings.data / sender_key_name(number), rng=rng) for number in numbers]
        self._next_block_s = clock.now_s()

    async def work(self, stop: asyncio.Event) -> None:
        """Rounds until stopped, or until the chain or the database is unavailable. A new request starts the next."""
        try:
            async with self._database.chain_requests.inserted() as asked:
                await self._work(stop, asked)
        except (ChainUnavailable, ChainRefused, ChainReverted, StoreUnavailable) as error:
            _log.warning("chain_work_postponed", why=error.code)
            if isinstance(error, ChainRefused):
                await self._leave_lost_states()

    async def _leave_lost_states(self) -> None:
        """A local chain that was killed has the state of its newest block only. What we wait for may be an older one,
        and nobody else makes the blocks after which it is of no interest."""
        if self._settings.mine:
            with suppress(ChainUnavailable, ChainRefused):
                await self._client.request("evm_mine")

    async def _work(self, stop: asyncio.Event, asked: asyncio.Event) -> None:
        follower, sender, settlement, market = await self._begin()
        while not stop.is_set():
            reorgs = follower.reorg_count
            asked.clear()
            pause_s = await self._round(follower, sender, settlement, market)
            if follower.reorg_count != reorgs:
                return  # the reorg may have removed even our contracts: begin again
            await _pause(pause_s, stop, asked)

    async def _begin(self) -> tuple[ChainFollower, OutboxSender, SettlementWorker | None, MarketWorker | None]:
        settings, client, store = self._settings, self._client, self._database.chain
        record = await self._deployed()
        contracts = await followed_contracts(client, record)
        follower = ChainFollower(
            client,
            store,
            contracts,
            start_block=record.start_block,
            depth=settings.depth,
            held_addresses=self._database.pockets.held_addresses,
        )
        is_new = await self._database.chain_restarts.awaits_cover()
        await follower.begin(rebuild=is_new, another_chain=is_new)  # then nothing in the index or the outbox is of use
        await store.set_problem(None)
        if settings.ready_file is not None:
            await asyncio.to_thread(write_private, settings.ready_file, STARTED_OVER if is_new else b"ready\n")
        signer, cap_wei = TransactionSigner([self._operator, *self._senders]), settings.max_fee_gwei * WEI_PER_GWEI
        sender = OutboxSender(client, store, signer, chain_id=record.chain_id, depth=settings.depth, cap_wei=cap_wei)
        return follower, sender, self._settlement_worker(contracts, record), self._market_worker(contracts, record)

    async def _deployed(self) -> DeploymentRecord:
        """Raises ContractsOutdated, after gateways were told: they answer for this process while it cannot work."""
        settings = self._settings
        try:
            if not settings.deploy:
                return get_current_record(settings.data)
            if settings.test_money:
                created = [step.create for step in shipped_plan() if step.create]
                await start_over_if_outdated(self._database, settings.data, wanted=created)
            return await shipped_deployment(self._client, settings.data, clock=self._clock, rng=self._rng).ensure()
        except ContractsOutdated as error:
            await self._database.chain.set_problem(error.message)
            raise

    async def _round(
        self,
        follower: ChainFollower,
        sender: OutboxSender,
        settlement: SettlementWorker | None,
        market: MarketWorker | None,
    ) -> float:
        """Returns the seconds until the next one."""
        more = await self._index(follower)
        busy = await sender.step()
        if busy:  # a local chain has mined what was sent: gateways hear of an order before the rest of the round
            more |= await self._index(follower)
        if market is not None:
            more |= await market.step()
            busy |= market.needs_block
        if settlement is not None:
            more |= await settlement.step()
            busy |= settlement.needs_block
        if self._settings.mine:
            busy = busy or await self._database.chain.has_fresh_events(depth=self._settings.depth)
            await self._mine_if_due(busy=busy)
        if more:
            return 0.0
        return min(BUSY_S, self._settings.poll_s) if busy and self._settings.mine else self._settings.poll_s

    async def _index(self, follower: ChainFollower) -> bool:
        """Index, and note which blocks a kill of a local chain cannot remove. True if there is more to do.

        The file is read before the index is held against the chain: if a killed chain has begun to save other blocks
        with the same numbers, the index has left the old ones when the number is noted.
        """
        saved = read_saved_block(self._settings.saved_block_file)
        more = await follower.step()
        await self._database.chain.set_saved_block(saved)
        return more

    async def _mine_if_due(self, *, busy: bool) -> None:
        """Mine a block if a transaction waits for one, or an event for blocks on top of it."""
        if busy and self._clock.now_s() >= self._next_block_s:
            await self._client.request("evm_mine")
            self._next_block_s = self._clock.now_s() + BLOCK_S

    def _settlement_worker(self, contracts: Contracts, record: DeploymentRecord) -> SettlementWorker | None:
        """None without a settlement contract."""
        if SETTLEMENT not in contracts:
            return None
        settings = self._settings
        senders = tuple(key.address for key in self._senders)
        config = SettlementConfig(
            record.chain_id, self._operator.address, settings.depth, settings.test_money, record.chain_tag, senders
        )
        return make_settlement_worker(
            self._client, self._database, contracts, config=config, custody=self._custody, clock=self._clock
        )

    def _market_worker(self, contracts: Contracts, record: DeploymentRecord) -> MarketWorker | None:
        """None without the market's contracts."""
        if STAKES not in contracts:
            return None
        addresses = (*(key.address for key in self._senders), self._operator.address)
        return make_market_worker(
            self._client,
            self._database,
            contracts,
            chain_id=record.chain_id,
            senders=SenderPool(self._client, self._database.chain, addresses),
            clock=self._clock,
        )

    def _custody(self) -> Custody | None:
        """None without the network's secret. Raises StartupError for a damaged one."""
        settings = self._settings
        if settings.secret is not None:
            return Custody(read_secret(settings.secret), rng=self._rng)
        if settings.secret_file is not None and settings.secret_file.exists():
            return Custody(read_secret_file(settings.secret_file), rng=self._rng)
        return None
