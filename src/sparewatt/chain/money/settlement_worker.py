"""One round of settlement: final events go into the ledger, requests of accounts and payout roots into the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt.accounts.custody import Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.follower import EventDelivery
from sparewatt.chain.money.audit import ChainAuditor
from sparewatt.chain.money.exits import ExitWorker
from sparewatt.chain.money.pocket_poster import PocketPoster
from sparewatt.chain.money.pool_cover import PoolCover
from sparewatt.chain.money.root_poster import RootPoster
from sparewatt.chain.money.settlement_contract import SETTLEMENT
from sparewatt.chain.requests.context import ChainRequestContext
from sparewatt.chain.requests.deposits import deposit_handlers
from sparewatt.chain.requests.leases import lease_handlers
from sparewatt.chain.requests.processor import ChainRequestProcessor
from sparewatt.chain.requests.providers import provider_handlers
from sparewatt.chain.requests.withdrawals import withdrawal_handlers
from sparewatt.chain.senders import STUCK_S, SenderPool
from sparewatt.core.clock import Clock
from sparewatt.core.log import Logger
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import hex_of
from sparewatt.ledger.payouts import PayoutService
from sparewatt.ledger.pockets import MONEY_EVENTS
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.credit_holds import CreditHoldStore
from sparewatt.store.database import Database
from sparewatt.store.payouts import PayoutStore

_log = Logger("sparewatt.chain")


@dataclass(frozen=True, slots=True)
class SettlementConfig:
    chain_id: int
    operator: str
    depth: int
    test_money: bool
    chain_tag: str
    """The beginning of the chain's genesis hash."""
    senders: tuple[str, ...] = ()
    """Keys beside the operator's that relay requests."""
    stuck_s: float = STUCK_S


@dataclass(frozen=True, slots=True)
class PayoutEventHandler:
    """Writes final events of a pool's roots into the books. Idempotent: the same event again changes nothing."""

    payouts: PayoutStore
    clock: Clock

    async def handle(self, event: ChainEvent) -> None:
        if event.args["pool"] != self.payouts.pool_id:
            return
        match event.event:
            case "RootPosted":
                await self._handle_root_posted(event)
            case "RootStruck":
                if await self.payouts.mark_struck(event.args["epoch"]):
                    _log.warning("payout_root_struck", pool=event.args["pool"], epoch=event.args["epoch"])
            case _:
                await self.payouts.mark_claimed(event.args["account"], claimed_micro=event.args["earned"])

    async def _handle_root_posted(self, event: ChainEvent) -> None:
        epoch = event.args["epoch"]
        batch = await self.payouts.find_batch(epoch)
        if batch is None or hex_of(batch.root) != event.args["root"]:
            # The operator's key is used with another database.
            _log.warning("root_is_not_ours", pool=event.args["pool"], epoch=epoch)
            return
        now, ripe_at = self.clock.unix_s(), event.args["ripe_at"]
        await self.payouts.mark_posted(epoch, tx=hex_of(event.tx_hash), unix_s=now, ripe_at=ripe_at)


@dataclass(frozen=True, slots=True)
class SettlementWorker:
    deliveries: Sequence[EventDelivery]
    requests: ChainRequestProcessor
    roots: RootPoster
    reward_roots: RootPoster
    cover: PoolCover
    exits: ExitWorker
    auditor: ChainAuditor
    holds: CreditHoldStore

    @property
    def needs_block(self) -> bool:
        """Whether something is due at a time that no block of the chain has reached yet."""
        return self.exits.needs_block

    async def step(self) -> bool:
        """True if there is more to do. Requests wait: the events of a finished request are posted first."""
        if any([await delivery.step() for delivery in self.deliveries]):
            return True
        is_sending = await self.requests.step()
        await self.holds.release_ended()
        await self.exits.step()
        await self.roots.step()
        await self.reward_roots.step()
        await self.cover.step()
        await self.auditor.step()
        return is_sending


def books_reader(contracts: Contracts) -> str:
    """Another one with a foreign token: it begins anew, for transfers that earlier releases did not follow.

    What the other has posted is not posted again.
    """
    return "books_and_transfers" if contracts.foreign else "books"


def make_settlement_worker(
    client: ChainClient,
    database: Database,
    contracts: Contracts,
    *,
    config: SettlementConfig,
    custody: Callable[[], Custody | None],
    clock: Clock,
) -> SettlementWorker:
    """Raises ContractsMissing without a settlement contract."""
    store, contract = database.chain, contracts[SETTLEMENT]
    payouts, rewards = (PayoutService(each, clock=clock) for each in (database.payouts, database.reward_payouts))
    poster = PocketPoster(client, contracts, database.pockets, config.chain_tag, clock)
    roots = [f"{SETTLEMENT}.{name}" for name in ("RootPosted", "RootStruck", "Claimed")]
    context = ChainRequestContext(client, contracts, config.chain_id, database, custody, config.test_money, clock)
    handlers = {
        **deposit_handlers(context, payouts, rewards),
        **lease_handlers(context),
        **provider_handlers(context),
        **withdrawal_handlers(context, operator=config.operator),
    }
    senders = SenderPool(client, store, (*config.senders, config.operator), config.stuck_s)
    return SettlementWorker(
        deliveries=[
            EventDelivery(store, books_reader(contracts), MONEY_EVENTS, config.depth, poster.handle),
            EventDelivery(store, "payouts", roots, config.depth, PayoutEventHandler(database.payouts, clock).handle),
            EventDelivery(
                store, "rewards", roots, config.depth, PayoutEventHandler(database.reward_payouts, clock).handle
            ),
        ],
        requests=ChainRequestProcessor(store, database.chain_requests, handlers, senders),
        roots=RootPoster(client, store, database.payouts, contract, config.operator, config.test_money),
        reward_roots=RootPoster(
            client, store, database.reward_payouts, contract, config.operator, config.test_money, "reward"
        ),
        cover=PoolCover(client, database, contract, config.operator, config.test_money),
        exits=ExitWorker(client, database, contract, payouts, config.operator, config.depth, clock),
        auditor=ChainAuditor(client, database, contracts, config.depth),
        holds=database.credit_holds,
    )
