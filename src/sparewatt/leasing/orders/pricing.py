"""The highest price of an order, and its deposit: shown before anything is signed. Pure; amounts are µUSD."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median_low

from sparewatt.core.errors import InvalidField
from sparewatt.core.money import format_usd
from sparewatt.leasing.lease_requests import HOUR_S, MIN_DEPOSIT_S
from sparewatt.leasing.orders.order_fields import NANO_PER_MICRO, LeaseOrder
from sparewatt.protocol.contracts.message_ranges import PRICE_UUSD_END

HEADROOM_PERCENT = 125
"""Of the dearest standing offer that fits: bonds follow the highest price, so much more would keep bidders away."""


@dataclass(frozen=True, slots=True)
class OfferedPrices:
    least: int
    median: int
    dearest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPrice:
    """Of each lease of an order."""

    max_price_uusd: int
    """Per hour, all-in: the highest bid that counts."""
    deposit_uusd: int
    """The cap: no lease costs more."""
    covers_s: int
    """How long the deposit lasts at the highest price."""


def offered_prices(prices: Sequence[int]) -> OfferedPrices | None:
    return OfferedPrices(min(prices), median_low(prices), max(prices)) if prices else None


def default_max_price(offers: Sequence[tuple[int, int]]) -> int | None:
    """Above the dearest offer, of prices and the free bonds behind them; None without one. Each bond covers its price.

    A bidder needs the highest price as bond, so a dear offer with a large bond could keep all others out of the auction
    and be the only bid. An offer counts only if the bonds of those that may bid below the price above it are together
    more than at any lower price: by bonds, since any number of nodes costs little.
    """
    prices, bonds = sorted(price for price, _ in offers), sorted(bond for _, bond in offers)
    behind = list(accumulate((bond for _, bond in sorted(offers)), initial=0))
    too_small = list(accumulate(bonds, initial=0))
    best: tuple[int, int] | None = None
    for price in prices:
        highest = min(PRICE_UUSD_END - 1, -(-price * HEADROOM_PERCENT // 100))
        may_bid = behind[bisect_right(prices, highest)] - too_small[bisect_left(bonds, highest)]
        if best is None or may_bid > best[0]:
            best = may_bid, highest
    return None if best is None else best[1]


def least_deposit(max_price_uusd: int) -> int:
    """As the order contract has it."""
    return max(1, max_price_uusd * MIN_DEPOSIT_S // HOUR_S)


def price_order(order: LeaseOrder, *, max_price_uusd: int) -> OrderPrice:
    """The deposit is what the whole duration costs at the highest price, or a share of `max_spend` if that is less.

    Raises InvalidField if `max_spend` is below what the contract asks for.
    """
    least = least_deposit(max_price_uusd)
    whole = max(least, -(-max_price_uusd * order.duration_s // HOUR_S))
    deposit = whole
    if order.max_spend_uusd is not None:
        deposit = min(whole, order.max_spend_uusd // order.count)
        if deposit < least:
            needed = format_usd(least * order.count * NANO_PER_MICRO)
            raise InvalidField(
                f"'max_spend' is below ${needed}: each lease needs a deposit for {MIN_DEPOSIT_S // 60} minutes at the "
                f"highest price of ${format_usd(max_price_uusd * NANO_PER_MICRO)} an hour. Raise it, or lower "
                "'max_hourly' in the policy.",
                param="max_spend",
            )
    covers_s = min(order.duration_s, deposit * HOUR_S // max_price_uusd)
    return OrderPrice(max_price_uusd=max_price_uusd, deposit_uusd=deposit, covers_s=covers_s)
