"""All that is done about settlement in one round: events into the books, requests and roots into the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparewatt.accounts.custody import Custody
from sparewatt.chain.booking import Booking
from sparewatt.chain.client import ChainClient
from sparewatt.chain.contracts import Contracts
from sparewatt.chain.delivery import Delivery
from sparewatt.chain.depositing import Depositing
from sparewatt.chain.requests import RequestDesk
from sparewatt.chain.roots import RootPoster
from sparewatt.chain.settlement import SETTLEMENT, deposits, payouts
from sparewatt.core.clock import Clock
from sparewatt.ledger.settlement import Settlement
from sparewatt.store.database import Database


@dataclass(frozen=True, slots=True)
class DeskTerms:
    chain_id: int
    operator: str
    depth: int
    test_money: bool


@dataclass(frozen=True, slots=True)
class Desk:
    deliveries: Sequence[Delivery]
    requests: RequestDesk
    roots: RootPoster

    async def step(self) -> bool:
        """True when there may be more to deliver; requests wait for that, since their end is shown in the books."""
        if any([await delivery.step() for delivery in self.deliveries]):
            return True
        await self.requests.step()
        await self.roots.step()
        return False


def open_desk(
    client: ChainClient,
    database: Database,
    contracts: Contracts,
    *,
    terms: DeskTerms,
    custody: Callable[[], Custody | None],
    clock: Clock,
) -> Desk:
    """Raises ContractsMissing without a settlement contract."""
    store, contract, booking = database.chain, contracts[SETTLEMENT], Booking(database, clock)
    depositing = Depositing(client, contract, terms.chain_id, database.people, custody, terms.test_money)
    settlement = Settlement(database.payouts, clock=clock)
    return Desk(
        deliveries=[
            deposits(store, depth=terms.depth, credit=booking.credit),
            payouts(store, depth=terms.depth, note=booking.note),
        ],
        requests=RequestDesk(store, database.requests, contracts, depositing, settlement, terms.operator),
        roots=RootPoster(client, store, database.payouts, contract, terms.operator, terms.test_money),
    )
