"""A renter's orders at a gateway: quoted from the market's index, sent to the chain, found again by their renter."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.clock import sleep_until
from sparewatt.core.errors import (
    ChainUnavailable,
    IdReused,
    InvalidField,
    LeaseNotFound,
    NoChain,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.leasing.lease_requests import BatchNames, LeaseRequestService, request_id
from sparewatt.leasing.orders.offers import OrderMarket, find_able
from sparewatt.leasing.orders.order_fields import COUNT_MAX, LeaseOrder
from sparewatt.leasing.orders.pricing import OrderPrice
from sparewatt.leasing.orders.provider_checks import OfferingProvider
from sparewatt.leasing.orders.quote import make_quote, notes_of, price_of
from sparewatt.leasing.orders.terms import attempts_of, filters_of, specification_of, terms_of, times_of
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.market.chain_records import (
    ENDED_ORDER_STATES,
    BondRecord,
    LeaseState,
    MarketState,
    OrderState,
    RegistryStatus,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.api.leases import LeaseQuote
from sparewatt.protocol.link.lease_offer import LeaseOffer
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.database import Database
from sparewatt.store.lease_orders import LeaseOrderRow, LeaseSpec
from sparewatt.store.request_params import ChainRequestKind, OrderParams

LEASE_ID_CHARS = 16
POLL_S = 0.05
WANTED_CHARS_MAX = 80
"""An order's id has 66."""
SAME_NAME_MAX = 50
"""Leases of one name that an error lists."""

ConnectedSpecs = Callable[[NodeId], NodeSpecs | None]
"""What a node reports; None if it is not connected."""


class MarketReader(Protocol):
    """Implemented by MarketIndex."""

    def view(self) -> ChainView: ...


@dataclass(frozen=True, slots=True)
class OrderedLeases:
    is_new: bool
    rows: tuple[LeaseOrderRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOrderService:
    database: Database
    requests: LeaseRequestService
    market: MarketReader
    connected_specs: ConnectedSpecs

    async def quote(self, order: LeaseOrder) -> LeaseQuote:
        """Raises BadRequest for an order that could not be sent, NoChain, ChainUnavailable or ContractsOutdated."""
        filters_of(order)
        await self._chain_requests.require_working_chain()
        views = self._providers()
        return make_quote(order, await _compare(order, views), providers=len(views))

    async def create(self, account: AccountId, order: LeaseOrder, *, reference: str) -> OrderedLeases:
        """Once per reference.

        Raises BadRequest, InsufficientCredits, RateLimited, IdReused, ChainUnavailable or ContractsOutdated.
        """
        known = await self._known(account, order, reference)
        if known is not None:
            return known
        await self._chain_requests.require_working_chain()
        view, written = self.market.view(), specification_of(order)
        market = await _compare(order, self._providers())
        price = _required_price(order, market)
        if view.latest.latest_snapshot is None:
            raise ChainUnavailable(
                "The market is not open yet: its validators have not agreed on a first table of providers. Try again.",
                retry_after_s=1.0,
            )
        asked, spec = await self._params(order, price, written.spec_hash), written
        names = BatchNames(
            reference=reference,
            name=order.name,
            asked_hash=order.asked_hash(),
            spec=LeaseSpec(spec.spec_hash, spec.specification, spec.content),
            lease_ids=lease_ids_of(account, reference, count=order.count),
            max_spend_micro=None if order.max_spend_uusd is None else order.max_spend_uusd // order.count,
        )
        is_new = await self.requests.order_batch(account, asked, deposit_micro=price.deposit_uusd, batch=names)
        stored = await self._known(account, order, reference)
        if stored is None:
            raise IdReused("This id was used before, for something else, so nothing was done.", param="id")
        return OrderedLeases(is_new, stored.rows, tuple(notes_of(order, market, price)))

    async def find(self, account: AccountId, wanted: str) -> LeaseOrderRow:
        """By its id, its order's, or a name that only one lease has, or only one that has not ended.

        Raises LeaseNotFound or InvalidField.
        """
        is_text = wanted.isprintable() and len(wanted) <= WANTED_CHARS_MAX
        found = await self.database.lease_orders.find(account, wanted, limit=SAME_NAME_MAX) if is_text else []
        meant = [row for row in found if wanted in (row.lease_id, row.order_id)] or found
        if len(meant) > 1:
            meant = self.not_ended(found) or found
        if len(meant) > 1:
            ids = ", ".join(row.lease_id for row in meant[:5])
            raise InvalidField(
                f"{len(meant)} leases are called {wanted[:70]!r}. Name one by its id: {ids}.", param="id"
            )
        if not meant:
            raise LeaseNotFound(f"You have no lease {wanted[:70]!r}.")
        return meant[0]

    async def running_spec(self, row: LeaseOrderRow) -> LeaseSpec | None:
        """What was ordered, or what an accepted update has put in its place; None if it is not known here.

        Raises ChainUnavailable.
        """
        order = self.market.view().latest.orders.get(row.order_id or "")
        if order is None or order.spec_hash == order.ordered_spec_hash:
            return None if row.content is None else LeaseSpec(row.spec_hash, row.specification, row.content)
        return await self.database.lease_orders.find_spec(order.spec_hash, renter=order.renter)

    async def list_of(
        self, account: AccountId, *, before: tuple[float, str] | None, limit: int
    ) -> Sequence[LeaseOrderRow]:
        return await self.database.lease_orders.list_of(account, before=before, limit=limit)

    async def wait_for_ids(self, account: AccountId, reference: str, *, wait_s: float) -> Sequence[LeaseOrderRow]:
        """The orders of a batch, as soon as each has its id or has failed, and after that time in any case."""
        clock, store = self.requests.clock, self.database.lease_orders
        deadline_s = clock.now_s() + wait_s
        while True:
            rows = await store.find_batch(account, reference, limit=COUNT_MAX)
            if all(is_placed(row) for row in rows) or clock.now_s() >= deadline_s:
                return rows
            await sleep_until(clock, clock.now_s() + POLL_S)

    async def cancel(self, row: LeaseOrderRow, *, reference: str) -> ChainRequestRow:
        """Raises UnprocessableContent for an order that has a lease, or has ended."""
        order_id, state = self.on_chain(row)
        if await self.was_asked(row, ChainRequestKind.CANCEL, reference=reference):
            return await self.act(row, ChainRequestKind.CANCEL, reference=reference)
        order = state.orders.get(order_id)
        if order is not None and order.state not in {OrderState.OPEN, OrderState.UNMATCHED}:
            has_lease = order.state is OrderState.MATCHED
            hint = f"'sparewatt lease close {row.lease_id}' ends its lease." if has_lease else "It has ended."
            raise UnprocessableContent(f"This order cannot be cancelled any more. {hint}")
        return await self.act(row, ChainRequestKind.CANCEL, reference=reference)

    async def close(self, row: LeaseOrderRow, *, reference: str) -> ChainRequestRow:
        """Raises UnprocessableContent for an order without a lease, or with one that has ended."""
        order_id, state = self.on_chain(row)
        if await self.was_asked(row, ChainRequestKind.CLOSE, reference=reference):
            return await self.act(row, ChainRequestKind.CLOSE, reference=reference)
        lease = state.leases.get(order_id)
        if lease is None:
            raise UnprocessableContent(
                f"No provider has this lease yet. 'sparewatt lease cancel {row.lease_id}' withdraws the order."
            )
        if lease.state is LeaseState.CLOSED:
            raise UnprocessableContent("This lease is closed already.")
        return await self.act(row, ChainRequestKind.CLOSE, reference=reference)

    async def was_asked(self, row: LeaseOrderRow, kind: ChainRequestKind, *, reference: str) -> bool:
        """Whether a request of this id was sent before: then its outcome is told, whatever the lease's state is now."""
        return await self.database.chain_requests.find(request_id(kind, row.account_id, reference)) is not None

    async def act(self, row: LeaseOrderRow, kind: ChainRequestKind, *, reference: str) -> ChainRequestRow:
        """Cancel an order, or pause, resume or close its lease, without a look at its state."""
        order_id, _ = self.on_chain(row)
        return await self.finished(await self.requests.act(row.account_id, kind, order_id, reference=reference))

    async def finished(self, asked: ChainRequestRow) -> ChainRequestRow:
        """When the chain's process has carried it out. Raises UnprocessableContent or ChainUnavailable."""
        done = await self._chain_requests.wait(
            asked.id, hint="It goes on by itself; 'sparewatt lease show' tells how far it is."
        )
        if done.state is ChainRequestState.FAILED:
            raise UnprocessableContent(f"Nothing was done: {done.reason}")
        return done

    @property
    def _chain_requests(self) -> ChainRequestClient:
        return ChainRequestClient(self.database.chain_requests, self.requests.clock)

    def not_ended(self, rows: Sequence[LeaseOrderRow]) -> list[LeaseOrderRow]:
        """None of them while the market cannot be read."""
        try:
            orders = self.market.view().latest.orders
        except (NoChain, ChainUnavailable):
            return []
        states = [(row, orders.get(row.order_id or "")) for row in rows if row.state is not ChainRequestState.FAILED]
        return [row for row, order in states if order is None or order.state not in ENDED_ORDER_STATES]

    def on_chain(self, row: LeaseOrderRow) -> tuple[str, MarketState]:
        """Raises UnprocessableContent before a block has the order."""
        if row.order_id is None:
            raise UnprocessableContent("The order is not on the chain yet. Try again in a moment.")
        return row.order_id, self.market.view().latest

    async def _known(self, account: AccountId, order: LeaseOrder, reference: str) -> OrderedLeases | None:
        rows = await self.database.lease_orders.find_batch(account, reference, limit=COUNT_MAX)
        if not rows:
            return None
        if rows[0].asked_hash != order.asked_hash():
            raise IdReused("This id was used before, for another order, so nothing was done.", param="id")
        return OrderedLeases(False, tuple(rows), ())

    async def _params(self, order: LeaseOrder, price: OrderPrice, spec_hash: str) -> OrderParams:
        index = await self.database.chain.index()
        if index is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")
        times = times_of(index.chain_id)
        return OrderParams(
            terms_of(order, max_price_uusd=price.max_price_uusd, times=times),
            spec_hash,
            int(self.requests.clock.unix_s()) + times.life_s,
            attempts_of(order),
        )

    def offer_of(self, provider: str) -> LeaseOffer | None:
        """A provider's standing offer; None if its node is not connected, or offers nothing."""
        record = self.market.view().latest.providers.get(provider)
        key = record.node_key if record is not None else None
        specs = self.connected_specs(NodeId(key)) if key is not None else None
        return specs.lease_offer if specs is not None and specs.leases else None

    def _providers(self) -> list[OfferingProvider]:
        """The active ones, the newest first."""
        state = self.market.view().latest
        found = []
        for record in reversed(state.providers.values()):
            if record.status is not RegistryStatus.ACTIVE or record.claims is None:
                continue
            specs = None if record.node_key is None else self.connected_specs(NodeId(record.node_key))
            found.append(
                OfferingProvider(
                    provider=record.provider,
                    claims=record.claims,
                    free_bond_uusd=state.bonds.get(record.provider, BondRecord()).free_uusd,
                    node_name=None if specs is None else specs.name,
                    offer=specs.lease_offer if specs is not None and specs.leases else None,
                )
            )
        return found


async def _compare(order: LeaseOrder, views: Sequence[OfferingProvider]) -> OrderMarket:
    """In a thread: with thousands of providers it takes long enough for other answers to notice."""
    return await asyncio.to_thread(find_able, order, views)


def is_placed(row: LeaseOrderRow) -> bool:
    """Whether its order's id is known, or will never be."""
    return row.order_id is not None or row.state is ChainRequestState.FAILED


def lease_ids_of(account: AccountId, reference: str, *, count: int) -> tuple[str, ...]:
    """Short, the same for the same reference, and nobody else's: an id cannot be made to meet another one."""
    first = hashlib.sha256(f"{account}\n{reference}".encode()).hexdigest()[:LEASE_ID_CHARS]
    return (first, *(f"{first}-{number}" for number in range(2, count + 1)))


def _required_price(order: LeaseOrder, market: OrderMarket) -> OrderPrice:
    price = price_of(order, market)
    if price is None:
        raise InvalidField(
            "No standing offer fits, so there is no price to derive the highest one from. Say 'max_hourly' in the "
            "policy, or loosen it: a dry run tells what would help.",
            param="policy.max_hourly",
        )
    return price
