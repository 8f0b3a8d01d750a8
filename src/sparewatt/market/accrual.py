"""The escrow's arithmetic for a lease's payment stream, to the last unit.

Due is rate · seconds // 3600 since the start, less what was paid. The fee is a share of the total paid so far, so that
settling often gives the same sums as settling once. Runways and statements are computed here; the contract decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

HOUR_S = 3600
BPS = 10_000


@dataclass(frozen=True, slots=True)
class PaymentStream:
    """A deposit and, while `rate_uusd` (per hour) is above 0, the payments from it."""

    deposit_uusd: int
    rate_uusd: int = 0
    since: int = 0
    end_at: int = 0
    paid_uusd: int = 0
    charged_uusd: int = 0
    """All that was ever paid from it, over its providers and pauses, fee included."""
    refunded_uusd: int | None = None
    """What went back to the payer when it ended."""
    deposited_uusd: int = 0
    """All that the payer ever put in."""
    compensated_uusd: int = 0
    """What providers' bonds added to it."""
    filled_uusd: int = 0
    """The deposit as it was after something was last added to it."""
    fee_uusd: int = 0
    """The network's part of all that was paid from it."""
    net_of: Mapping[str, int] = field(default_factory=dict)
    """By provider: what it was paid, without the fee."""
    paid_until: int | None = None
    """Of a stream that stands: the last second that its provider was paid for. None if the deposit ran dry before."""


@dataclass(frozen=True, slots=True)
class StreamSettlement:
    stream: PaymentStream
    pay_uusd: int
    fee_uusd: int


def due_uusd(stream: PaymentStream, *, at: int) -> int:
    """What a settlement at `at` would pay, fee included. From 0 to the whole deposit."""
    seconds = max(0, min(at, stream.end_at) - stream.since)
    earned = stream.rate_uusd * seconds // HOUR_S
    return min(max(0, earned - stream.paid_uusd), stream.deposit_uusd)


def settle(stream: PaymentStream, *, at: int, fee_bps: int) -> StreamSettlement:
    due = due_uusd(stream, at=at)
    paid = stream.paid_uusd + due
    fee = paid * fee_bps // BPS - stream.paid_uusd * fee_bps // BPS
    settled = replace(stream, paid_uusd=paid, deposit_uusd=stream.deposit_uusd - due)
    return StreamSettlement(stream=settled, pay_uusd=due - fee, fee_uusd=fee)


def runway_s(stream: PaymentStream, *, at: int) -> int:
    """Seconds until the deposit is used up at the current rate; 0 if the rate is 0."""
    if stream.rate_uusd == 0:
        return 0
    left = stream.deposit_uusd - due_uusd(stream, at=at)
    return left * HOUR_S // stream.rate_uusd


def empty_at_of(stream: PaymentStream) -> int:
    """The first second at which a settlement takes all that is left, of a stream that pays."""
    return stream.since - (-(stream.deposit_uusd + stream.paid_uusd) * HOUR_S // stream.rate_uusd)


def paid_until_of(stream: PaymentStream) -> int | None:
    """The last second that is paid for, of a stream that pays. None if the deposit could not pay for all of it.

    Amounts are rounded down, so several seconds may have the same pay at a price below a unit per second: then it is
    the last of them.
    """
    if stream.rate_uusd == 0 or stream.deposit_uusd == 0:
        return None
    return stream.since + ((stream.paid_uusd + 1) * HOUR_S - 1) // stream.rate_uusd


def left_at(stream: PaymentStream, *, left_percent: int) -> int | None:
    """The first second at which no more than so much of the deposit, as it was last filled, is left.

    None if nothing is being paid.
    """
    if stream.rate_uusd == 0:
        return None
    missing = max(0, stream.deposit_uusd - stream.filled_uusd * left_percent // 100)
    return max(stream.since, stream.since - (-(missing + stream.paid_uusd) * HOUR_S // stream.rate_uusd))
