"""/v1/market: orders, leases, providers and validators as the chain's events tell them. It only reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import RequestLimiter, endpoint
from sparewatt.api.market.replies import (
    lease_reply,
    order_reply,
    provider_reply,
    snapshot_reply,
    usd,
    validator_reply,
)
from sparewatt.api.paging import PAGE_QUERY, PageSelection, read_cursor, read_limit, take_turns, write_cursor
from sparewatt.api.query import address_of, choice
from sparewatt.core.errors import NotFound
from sparewatt.edge.middleware import context_of
from sparewatt.market.chain_records import (
    ENDED_ORDER_STATES,
    LeaseRecord,
    LeaseState,
    OrderRecord,
    ProviderRecord,
    VotingRecord,
)
from sparewatt.market.chain_view import ChainView
from sparewatt.market.voting_record import RecentVotes
from sparewatt.protocol.api.market import (
    MarketLease,
    MarketLeaseList,
    MarketOrder,
    MarketOrderList,
    MarketProviderList,
    MarketValidatorList,
)

WHICH = ("open", "all")
"""`open` leaves out what has ended."""

_Record = TypeVar("_Record")


class MarketView(Protocol):
    """Implemented by MarketIndex."""

    def view(self) -> ChainView: ...


class VoteCounts(Protocol):
    """Implemented by RecentVoteCounts."""

    async def recent(self) -> Mapping[str, RecentVotes]: ...


class NewestFirst(NamedTuple):
    """The sort key of a list."""

    before_s: int
    id: str


class Listing(NamedTuple):
    """What a page of a list has: its filter and its bounds."""

    which: str
    limit: int
    after: NewestFirst | None


@dataclass(slots=True, kw_only=True)
class MarketEndpoints:
    limiter: RequestLimiter
    market: MarketView
    votes: VoteCounts

    @endpoint("GET /v1/market/orders", access="identified", query=("which", "renter", *PAGE_QUERY))
    async def list_market_orders(self, request: web.Request, _: Principal) -> MarketOrderList:
        """List orders, the newest first: `which=open` (the default) or `all`, of one renter or of everybody."""
        listing, view, renter = self._begin(request), self.market.view(), address_of(request, "renter")

        def is_wanted(order: OrderRecord) -> bool:
            ended = order.state in ENDED_ORDER_STATES
            return (listing.which == "all" or not ended) and renter in (None, order.renter)

        orders = list(view.latest.orders.values())
        found, following = await _page(orders, listing, is_wanted, lambda o: NewestFirst(-o.created_at, o.order_id))
        return MarketOrderList(data=[order_reply(view, order) for order in found], next=following, **_heads(view))

    @endpoint("GET /v1/market/orders/{order}", access="identified")
    async def show_market_order(self, request: web.Request, _: Principal) -> MarketOrder:
        """Show an order by its id, with its lease if it has one."""
        self._charge(request)
        view, order_id = self.market.view(), request.match_info["order"].lower()
        if order_id not in view.latest.orders:
            raise NotFound(f"There is no order {order_id[:70]!r}. 'sparewatt market orders --all' lists them.")
        return order_reply(view, view.latest.orders[order_id])

    @endpoint("GET /v1/market/leases", access="identified", query=("which", "renter", "provider", *PAGE_QUERY))
    async def list_market_leases(self, request: web.Request, _: Principal) -> MarketLeaseList:
        """List leases, the newest first: `which=open` (the default) or `all`, of a renter, a provider or everybody."""
        listing, view = self._begin(request), self.market.view()
        renter, provider = address_of(request, "renter"), address_of(request, "provider")

        def is_wanted(lease: LeaseRecord) -> bool:
            is_shown = listing.which == "all" or lease.state is not LeaseState.CLOSED
            return is_shown and renter in (None, lease.renter) and provider in (None, lease.provider)

        leases = list(view.latest.leases.values())
        found, following = await _page(leases, listing, is_wanted, lambda o: NewestFirst(-o.created_at, o.lease_id))
        return MarketLeaseList(data=[lease_reply(view, lease) for lease in found], next=following, **_heads(view))

    @endpoint("GET /v1/market/leases/{lease}", access="identified")
    async def show_market_lease(self, request: web.Request, _: Principal) -> MarketLease:
        """Show a lease by its id, which is its order's."""
        self._charge(request)
        view, lease_id = self.market.view(), request.match_info["lease"].lower()
        if lease_id not in view.latest.leases:
            raise NotFound(f"There is no lease {lease_id[:70]!r}. 'sparewatt market leases --all' lists them.")
        return lease_reply(view, view.latest.leases[lease_id])

    @endpoint("GET /v1/market/providers", access="identified", query=("which", *PAGE_QUERY))
    async def list_market_providers(self, request: web.Request, _: Principal) -> MarketProviderList:
        """List the registered providers, the newest first: `which=open` (the default) leaves out those that left."""
        listing, view = self._begin(request), self.market.view()

        def is_wanted(provider: ProviderRecord) -> bool:
            return listing.which == "all" or provider.status.name != "LEFT"

        providers = list(view.latest.providers.values())
        key = lambda provider: NewestFirst(-provider.registered_at, provider.provider)  # noqa: E731
        found, following = await _page(providers, listing, is_wanted, key)
        return MarketProviderList(data=[provider_reply(view, each) for each in found], next=following, **_heads(view))

    @endpoint("GET /v1/market/validators", access="identified")
    async def list_market_validators(self, request: web.Request, _: Principal) -> MarketValidatorList:
        """List the validators with stakes and votes, those with most weight first, and the newest snapshot."""
        self._charge(request)
        view, recent = self.market.view(), await self.votes.recent()
        state = view.latest
        weights = {weight.operator: weight.weight for weight in state.weights_at(state.stake_version)}
        ranked = sorted(state.validators.values(), key=lambda each: (-weights.get(each.operator, 0), each.operator))
        return MarketValidatorList(
            stake_version=state.stake_version,
            total_usd=usd(state.total_at(state.stake_version)),
            snapshot=snapshot_reply(state.latest_snapshot),
            data=[
                validator_reply(
                    each,
                    weight=weights.get(each.operator, 0),
                    voting=state.voting.get(each.operator, VotingRecord()),
                    recent=recent.get(each.operator, RecentVotes()),
                )
                for each in ranked
            ],
            **_heads(view),
        )

    def _begin(self, request: web.Request) -> Listing:
        """Raises InvalidField."""
        self._charge(request)
        return Listing(choice(request, "which", WHICH), read_limit(request), read_cursor(request, NewestFirst))

    def _charge(self, request: web.Request) -> None:
        self.limiter.charge(context_of(request))


def _heads(view: ChainView) -> dict[str, Any]:
    return {"latest_block": view.latest_block, "final_block": view.final_block}


async def _page(
    records: Iterable[_Record],
    listing: Listing,
    is_wanted: Callable[[_Record], bool],
    key_of: Callable[[_Record], NewestFirst],
) -> tuple[list[_Record], str | None]:
    """The records of one page, and the cursor of the next."""
    page: PageSelection[NewestFirst, _Record] = PageSelection(after=listing.after, limit=listing.limit)

    def visit(record: _Record) -> int:
        if is_wanted(record):
            page.add(key_of(record), record)
        return 1

    await take_turns(records, visit)
    found = page.items()
    following = write_cursor(found[listing.limit - 1][0]) if len(found) > listing.limit else None
    return [record for _, record in found[: listing.limit]], following
