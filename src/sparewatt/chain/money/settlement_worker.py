"""One round of settlement: final events go into the ledger, requests of accounts and payout roots into the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt.accounts.custody import Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.follower import EventDelivery, business_id
from sparewatt.chain.money.root_poster import RootPoster
from sparewatt.chain.money.settlement_contract import CREDIT_POOL_ID, SETTLEMENT
from sparewatt.chain.requests.context import RequestContext
from sparewatt.chain.requests.deposits import deposit_handlers
from sparewatt.chain.requests.leases import lease_handlers
from sparewatt.chain.requests.processor import ChainRequestProcessor
from sparewatt.chain.requests.providers import provider_handlers
from sparewatt.chain.requests.withdrawals import withdrawal_handlers
from sparewatt.chain.senders import SenderPool
from sparewatt.core.clock import Clock
from sparewatt.core.limits import TRANSFER_NANO_MAX
from sparewatt.core.log import Logger
from sparewatt.core.money import Nano
from sparewatt.evm.contract_abi import Contracts
from sparewatt.evm.model import hex_of
from sparewatt.ledger.credits import deposit_transfer
from sparewatt.ledger.deposit_adapters import CHAIN_ADAPTER, ConfirmedDeposit
from sparewatt.ledger.payouts import NANO_PER_MICRO, PayoutService
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.database import Database

_log = Logger("sparewatt.chain")
DEPOSIT_PARTS_MAX = 1_000
"""Transfers of one deposit, a billion dollars together. Sums of many such still fit a bigint."""


@dataclass(frozen=True, slots=True)
class SettlementConfig:
    chain_id: int
    operator: str
    depth: int
    test_money: bool
    senders: tuple[str, ...] = ()
    """Keys beside the operator's that relay requests."""


def split_deposit(event_id: str, nano: int) -> list[ConfirmedDeposit]:
    """A deposit as amounts of one transfer each, under references of their own; nearly always it is one."""
    starts = range(0, nano, TRANSFER_NANO_MAX)
    return [
        ConfirmedDeposit(f"{event_id}/{number}" if number else event_id, Nano(min(TRANSFER_NANO_MAX, nano - start)))
        for number, start in enumerate(starts)
    ]


@dataclass(frozen=True, slots=True)
class SettlementEventHandler:
    """Writes final events into the ledger. Idempotent: the same event again changes nothing."""

    database: Database
    clock: Clock

    async def handle_deposit(self, event: ChainEvent) -> None:
        """A deposit for an unknown address, or of too much, stays in the contract: its depositor can withdraw it."""
        event_id, nano = business_id(event), event.args["amount"] * NANO_PER_MICRO
        account_id = await self.database.accounts.account_at_address(event.args["account"])
        if account_id is None or nano > DEPOSIT_PARTS_MAX * TRANSFER_NANO_MAX:
            _log.warning("deposit_not_posted", event_id=event_id, account=account_id)
            return
        for deposit in split_deposit(event_id, nano):
            transfer = deposit_transfer(account_id, deposit, adapter=CHAIN_ADAPTER, unix_s=self.clock.unix_s())
            if await self.database.ledger.post_transfer(transfer):
                _log.info("deposit_posted", event_id=deposit.reference, account=account_id)

    async def handle_payout_event(self, event: ChainEvent) -> None:
        if event.args["pool"] != CREDIT_POOL_ID:
            return
        if event.event == "RootPosted":
            await self._handle_root_posted(event)
        else:
            await self.database.payouts.mark_claimed(event.args["account"], claimed_micro=event.args["earned"])

    async def _handle_root_posted(self, event: ChainEvent) -> None:
        epoch = event.args["epoch"]
        batch = await self.database.payouts.find_batch(epoch)
        if batch is None or hex_of(batch.root) != event.args["root"]:
            _log.warning("root_is_not_ours", epoch=epoch)  # the operator's key is used with another database
            return
        await self.database.payouts.mark_posted(epoch, tx=hex_of(event.tx_hash), unix_s=self.clock.unix_s())


@dataclass(frozen=True, slots=True)
class SettlementWorker:
    deliveries: Sequence[EventDelivery]
    requests: ChainRequestProcessor
    roots: RootPoster

    async def step(self) -> bool:
        """True if there is more to do. Requests wait: the events of a finished request are posted first."""
        if any([await delivery.step() for delivery in self.deliveries]):
            return True
        is_sending = await self.requests.step()
        await self.roots.step()
        return is_sending


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
    store, contract, handler = database.chain, contracts[SETTLEMENT], SettlementEventHandler(database, clock)
    deposited = [f"{SETTLEMENT}.Deposited"]
    paid_out = [f"{SETTLEMENT}.RootPosted", f"{SETTLEMENT}.Claimed"]
    context = RequestContext(client, contracts, config.chain_id, database, custody, config.test_money, clock)
    handlers = {
        **deposit_handlers(context, PayoutService(database.payouts, clock=clock)),
        **lease_handlers(context),
        **provider_handlers(context),
        **withdrawal_handlers(context),
    }
    senders = SenderPool(client, store, (*config.senders, config.operator))
    return SettlementWorker(
        deliveries=[
            EventDelivery(store, "deposits", deposited, config.depth, handler.handle_deposit),
            EventDelivery(store, "payouts", paid_out, config.depth, handler.handle_payout_event),
        ],
        requests=ChainRequestProcessor(store, database.chain_requests, handlers, senders),
        roots=RootPoster(client, store, database.payouts, contract, config.operator, config.test_money),
    )
