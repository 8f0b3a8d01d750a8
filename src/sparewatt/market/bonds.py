"""Bonds of providers: what a bid puts at risk, what a commit needs, and what is locked while a lease runs.

Amounts follow from the order's highest price and not from the bid, because a low price must not make breaking a bid
cheap. The contracts compute the same numbers; here they tell a provider what it needs, and a validator whom to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparewatt.market.accrual import HOUR_S

BID_BOND_S = 600
BPS = 10_000
SHARE_CHALLENGER_BPS = 1_000
SHARE_HARMED_BPS = 4_000


@dataclass(frozen=True, slots=True)
class ProviderBond:
    free_uusd: int
    locked_uusd: int = 0
    unbonding_uusd: int = 0


@dataclass(frozen=True, slots=True)
class ForfeitShares:
    """How a slash or a forfeited bid bond is shared. Whoever owns every party of an order still loses half."""

    challenger_uusd: int
    harmed_uusd: int
    insurance_uusd: int


def bid_bond_uusd(max_price_uusd: int) -> int:
    """Ten minutes of the order's highest price."""
    return max(1, max_price_uusd * BID_BOND_S // HOUR_S)


def commit_needs_uusd(max_prices_uusd: Iterable[int]) -> int:
    """The free bond that a bidder needs: an hour of the highest price of each order that may still lock some of it.

    These are orders with an open bid of the provider, this one included, and those in which it can claim as a stand-in:
    a claim in an order of its own would otherwise free it from a bid for nothing.
    """
    return sum(max_prices_uusd)


def wanted_lock_uusd(pay_uusd: int, *, max_price_uusd: int) -> int:
    """An hour of pay, at least the bid bond."""
    return max(pay_uusd, bid_bond_uusd(max_price_uusd))


def lock_bond(bond: ProviderBond, *, wanted_uusd: int, least_uusd: int) -> tuple[ProviderBond, int]:
    """Lock what is wanted as far as it is there, free money first, then unbonding. Below `least_uusd` nothing."""
    amount = min(wanted_uusd, bond.free_uusd + bond.unbonding_uusd)
    if amount < least_uusd:
        return bond, 0
    from_free = min(amount, bond.free_uusd)
    locked = ProviderBond(
        free_uusd=bond.free_uusd - from_free,
        locked_uusd=bond.locked_uusd + amount,
        unbonding_uusd=bond.unbonding_uusd - (amount - from_free),
    )
    return locked, amount


def forfeit_shares(amount_uusd: int) -> ForfeitShares:
    challenger = amount_uusd * SHARE_CHALLENGER_BPS // BPS
    harmed = amount_uusd * SHARE_HARMED_BPS // BPS
    return ForfeitShares(challenger, harmed, amount_uusd - challenger - harmed)


def cancel_charge_uusd(rate_uusd: int, *, start_s: int, deposit_uusd: int) -> int:
    """What a renter pays that closes a lease before its first start: the time that the provider had for it."""
    return min(deposit_uusd, rate_uusd * start_s // HOUR_S)


def minute_uusd(rate_uusd: int) -> int:
    """The deposit below which a paused lease may be closed as empty, and above which it can be resumed."""
    return max(1, rate_uusd // 60)
