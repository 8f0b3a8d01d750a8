"""When the next auction of an order that found nobody opens, if its renter lets anybody open it. Pure.

The chain's process acts by it; the API tells it, so that whoever waits sees until when. Times are the chain's.
"""

from __future__ import annotations

from sparewatt.market.chain_records import MarketState, OrderRecord, OrderState

REOPEN_BASE_S = 10
"""From the opening of an attempt that found nobody to the next; doubled with each, so that providers can come."""
REOPEN_DELAY_S_MAX = 600
MIN_DEPOSIT_S = 600
"""The order contract wants a deposit for ten minutes at the highest price before it opens an attempt."""
HOUR_S = 3_600


def next_attempt_at(state: MarketState, order: OrderRecord) -> int | None:
    """None if the order is not unmatched, its attempts are used up, or it expires before or lacks the deposit."""
    if order.state is not OrderState.UNMATCHED or order.attempt >= order.max_attempts:
        return None
    reopen_at = order.opened_at[order.attempt] + reopen_delay_s(order.attempt)
    return reopen_at if reopen_at <= order.expires_at and _has_deposit(state, order) else None


def reopen_delay_s(attempt: int) -> int:
    return min(REOPEN_BASE_S << min(attempt, 16), REOPEN_DELAY_S_MAX)


def _has_deposit(state: MarketState, order: OrderRecord) -> bool:
    stream = state.streams.get(order.order_id)
    least = order.terms.max_price_uusd * MIN_DEPOSIT_S // HOUR_S
    return stream is not None and stream.deposit_uusd >= least
