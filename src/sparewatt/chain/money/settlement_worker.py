"""All that is done about settlement in one round: events into the books, requests and roots into the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt.accounts.custody import Custody
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts
from sparewatt.chain.event_delivery import EventDelivery
from sparewatt.chain.money.deposit_call_builder import DepositCallBuilder
from sparewatt.chain.money.request_processor import ChainRequestProcessor
from sparewatt.chain.money.root_poster import RootPoster
from sparewatt.chain.money.settlement_contract import SETTLEMENT, deposit_delivery, payout_delivery
from sparewatt.chain.money.settlement_event_handler import SettlementEventHandler
from sparewatt.core.clock import Clock
from sparewatt.ledger.payouts import PayoutService
from sparewatt.store.database import Database


@dataclass(frozen=True, slots=True)
class SettlementConfig:
    chain_id: int
    operator: str
    depth: int
    test_money: bool


@dataclass(frozen=True, slots=True)
class SettlementWorker:
    deliveries: Sequence[EventDelivery]
    requests: ChainRequestProcessor
    roots: RootPoster

    async def step(self) -> bool:
        """True when there may be more to deliver; requests wait for that, since their end is shown in the books."""
        if any([await delivery.step() for delivery in self.deliveries]):
            return True
        await self.requests.step()
        await self.roots.step()
        return False


def make_settlement_worker(
    client: ChainClient,
    database: Database,
    contracts: Contracts,
    *,
    terms: SettlementConfig,
    custody: Callable[[], Custody | None],
    clock: Clock,
) -> SettlementWorker:
    """Raises ContractsMissing without a settlement contract."""
    store, contract, booking = database.chain, contracts[SETTLEMENT], SettlementEventHandler(database, clock)
    depositing = DepositCallBuilder(client, contract, terms.chain_id, database.accounts, custody, terms.test_money)
    settlement = PayoutService(database.payouts, clock=clock)
    return SettlementWorker(
        deliveries=[
            deposit_delivery(store, depth=terms.depth, credit=booking.handle_deposit),
            payout_delivery(store, depth=terms.depth, note=booking.handle_payout_event),
        ],
        requests=ChainRequestProcessor(
            store, database.chain_requests, contracts, depositing, settlement, terms.operator
        ),
        roots=RootPoster(client, store, database.payouts, contract, terms.operator, terms.test_money),
    )
