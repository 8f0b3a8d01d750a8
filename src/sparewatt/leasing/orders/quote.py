"""What an order would meet and cost, in one reply, before anything is held or signed. Pure."""

from __future__ import annotations

import re

from sparewatt.core.money import format_usd
from sparewatt.leasing.orders.cloud_prices import PublishedPrice, published_prices
from sparewatt.leasing.orders.offers import AbleProvider, OrderMarket
from sparewatt.leasing.orders.order_fields import NANO_PER_MICRO, LeaseOrder
from sparewatt.leasing.orders.pricing import OrderPrice, default_max_price, offered_prices, price_order
from sparewatt.leasing.orders.provider_checks import COUNTRY_NAME, GPU_NAME, TIER_NAME, UNCHECKED
from sparewatt.leasing.orders.terms import attempts_of, filters_of, specification_of
from sparewatt.protocol.api.leases import CloudPrice, LeaseQuote, OfferPriceRange, StandingOffer

OFFERS_SHOWN_MAX = 50
CARDS_COMPARED_MAX = 8
FAR_ABOVE = 4
"""Times the median offer: the winner is paid by the second-best bid, so a dear one may set the price where few bid."""
STARTED_BY_PROVIDER = (
    "The winner starts the container; until then the lease is pending and costs nothing by the hour. Closing a lease "
    "gives the rest of its deposit back."
)
CLAIMED = (
    "Card, place, price and free capacity are the providers' own claims; the bond is read from the chain. Validators "
    "decide by their table of the epoch."
)
_LOOKS_SECRET = re.compile(r"(?i)(secret|password|passwd|token|api_?key|private_?key|credential)")


def usd(uusd: int) -> str:
    return format_usd(uusd * NANO_PER_MICRO)


def price_of(order: LeaseOrder, market: OrderMarket) -> OrderPrice | None:
    """By the policy's highest price, else by the standing offers; None without either. Raises BadRequest."""
    by_policy = filters_of(order).max_price_uusd
    offers = [(each.hourly_uusd, each.view.free_bond_uusd) for each in market.able]
    highest = default_max_price(offers) if by_policy is None else by_policy
    return None if highest is None else price_order(order, max_price_uusd=highest)


def make_quote(order: LeaseOrder, market: OrderMarket, *, providers: int) -> LeaseQuote:
    """Raises BadRequest for an order that could not be sent."""
    specification_of(order)
    price = price_of(order, market)
    offered = offered_prices(_prices(market))
    cloud, cloud_note = _cloud_prices(order, market)
    return LeaseQuote(
        name=order.name,
        count=order.count,
        offers=[_offer(each) for each in market.able[:OFFERS_SHOWN_MAX]],
        able=len(market.able),
        providers=providers,
        funnel=list(market.funnel),
        nearest_relaxations=list(market.relaxations),
        prices=None
        if offered is None
        else OfferPriceRange(
            least_usd=usd(offered.least), median_usd=usd(offered.median), dearest_usd=usd(offered.dearest)
        ),
        cloud_prices=cloud,
        cloud_note=cloud_note,
        max_hourly_usd=None if price is None else usd(price.max_price_uusd),
        max_hourly_source=None if price is None else "offers" if order.policy.max_hourly is None else "policy",
        duration_s=order.duration_s,
        deposit_usd=None if price is None else usd(price.deposit_uusd),
        total_usd=None if price is None else usd(price.deposit_uusd * order.count),
        covers_s=None if price is None else price.covers_s,
        max_attempts=attempts_of(order),
        notes=notes_of(order, market, price),
    )


def notes_of(order: LeaseOrder, market: OrderMarket, price: OrderPrice | None) -> list[str]:
    notes = ([STARTED_BY_PROVIDER] if price is not None else []) + ([CLAIMED] if market.able else [])
    unchecked = [name for name in UNCHECKED if getattr(order.policy, name) is not None]
    if unchecked:
        notes.append(f"Not checked here, only by the validators: {', '.join(unchecked)}.")
    readable = [name for name in order.content.env if _LOOKS_SECRET.search(name)]
    if readable:
        notes.append(f"Every bidder can read 'env': move {', '.join(sorted(readable)[:5])} to 'secrets'.")
    if order.content.secrets:
        notes.append(
            "Only the names of secrets are in the order; you seal their values to the candidates after the match. So "
            "it has one auction: if nobody serves it, it ends, and you order anew."
        )
    if price is not None and price.covers_s < order.duration_s:
        hours = f"{price.covers_s / 3_600:.1f} h of {order.duration_s / 3_600:.1f} h"
        notes.append(f"At the highest price the deposit lasts {hours}.")
    return notes + (_auction_notes(order, market, price) if price is not None else [])


def _auction_notes(order: LeaseOrder, market: OrderMarket, price: OrderPrice) -> list[str]:
    """What keeps offers out of the auction, or makes it dear."""
    notes, highest, offers = [], price.max_price_uusd, len(market.able)
    dear = [each.hourly_uusd for each in market.able if each.hourly_uusd > highest]
    if dear:
        notes.append(
            f"{len(dear)} of {offers} are above the highest price, up to ${usd(max(dear))}: with it more of the others "
            "could not bid for want of a bond. A 'max_hourly' of yours counts before that."
        )
    poor = sum(each.hourly_uusd <= highest > each.view.free_bond_uusd for each in market.able)
    if poor:
        notes.append(
            f"{poor} of {offers} cannot bid: their bond is below an hour of the highest price. A lower 'max_hourly' "
            "lets them."
        )
    middle = offered_prices(_prices(market))
    if middle is not None and order.policy.max_hourly is None and highest > FAR_ABOVE * middle.median:
        notes.append(
            f"The highest price is far above the median offer of ${usd(middle.median)}. A 'max_hourly' of yours bounds "
            "what is paid if few bid."
        )
    room = sum(each.room for each in market.able)
    if market.able and room < order.count:
        notes.append(f"The offers have room for {room} of {order.count} leases: the others may find nobody.")
    return notes


def _prices(market: OrderMarket) -> list[int]:
    return [each.hourly_uusd for each in market.able]


def _offer(able: AbleProvider) -> StandingOffer:
    view, claims = able.view, able.view.claims
    return StandingOffer(
        provider=view.provider,
        name=view.node_name,
        place=COUNTRY_NAME.get(claims.country),
        gpu=GPU_NAME.get(claims.gpu_model),
        gpu_count=claims.gpu_units,
        vram_gb=claims.vram_gb or None,
        tier=TIER_NAME.get(claims.tier),
        hourly_usd=usd(able.hourly_uusd),
        free_bond_usd=usd(view.free_bond_uusd),
        measured=["free_bond_usd"],
    )


def _cloud_prices(order: LeaseOrder, market: OrderMarket) -> tuple[list[CloudPrice], str | None]:
    """Of the cards that the order names, else of those that are offered."""
    if order.gpus == 0:
        return [], "There is no published cloud price here for a machine without a GPU."
    named = order.policy.gpu.allowed if order.policy.gpu is not None else None
    offered = {GPU_NAME.get(each.view.claims.gpu_model) for each in market.able}
    cards = sorted(named or {card for card in offered if card is not None})[:CARDS_COMPARED_MAX]
    found = [price for card in cards for price in published_prices(card)]
    missing = [card for card in cards if not published_prices(card)]
    note = "For comparison only: another product on other terms, as of its day." if found else None
    if missing:
        note = f"The table of this release has no published cloud price of {', '.join(missing)}."
    return [_cloud_price(price) for price in found], note


def _cloud_price(price: PublishedPrice) -> CloudPrice:
    return CloudPrice(
        gpu=price.gpu,
        cloud=price.cloud,
        instance=price.instance,
        hourly_usd=f"{price.hourly_usd:.3f}",
        as_of=price.as_of,
        source=price.source,
    )
