"""What a lease costs, who ended it and why, and its history, as replies. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.api.market.replies import usd
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import LeaseState, OrderRecord, OrderState
from sparewatt.market.chain_view import ChainView
from sparewatt.market.lease_billing import DepositWarning, LeaseBilling, billing_of
from sparewatt.market.lease_history import HistoryEntry
from sparewatt.protocol.api.lease_changes import LeaseEnding, LeaseEvent, LeaseEventList, LeaseMoney
from sparewatt.protocol.contracts.reason_words import CLOSE_WORDS, ReasonWords
from sparewatt.protocol.contracts.reasons import CloseReason

_CANCELLED = ReasonWords("renter", "the renter withdrew the order before it had a provider")
_EXPIRED = ReasonWords("network", "no provider was found")


def write_money(view: ChainView, order: OrderRecord, lease_id: str, *, unix_s: float) -> LeaseMoney:
    """`lease_id`: how commands name it."""
    stream, now = view.latest.streams.get(order.order_id, PaymentStream(0)), max(int(unix_s), view.latest_unix_s)
    billing = billing_of(order, view.latest.leases.get(order.order_id), stream, at=now)
    return LeaseMoney(
        as_of=now,
        hourly_usd=usd(billing.rate_uusd),
        spent_usd=usd(billing.spent_uusd),
        left_usd=usd(billing.left_uusd),
        deposited_usd=usd(stream.deposited_uusd),
        compensated_usd=usd(stream.compensated_uusd),
        runway_s=billing.runway_s,
        runs_until=billing.runs_until,
        limit=None if billing.limit is None else billing.limit.value,
        paused_s=billing.paused_s,
        grace_ends_at=billing.grace_ends_at,
        warning=None if billing.warning is None else billing.warning.value,
        next_step=_next_step(billing, lease_id),
    )


def _next_step(billing: LeaseBilling, lease_id: str) -> str | None:
    match billing.warning:
        case DepositWarning.EMPTY:
            return f"'sparewatt lease top-up {lease_id} USD' resumes it; without that it is closed after the grace."
        case DepositWarning.LOW:
            return f"'sparewatt lease top-up {lease_id} USD' adds to the deposit."
        case None:
            return None


def write_ending(view: ChainView, order: OrderRecord) -> LeaseEnding | None:
    lease = view.latest.leases.get(order.order_id)
    stream = view.latest.streams.get(order.order_id, PaymentStream(0))
    if lease is not None and lease.state is LeaseState.CLOSED:
        reason, words = _close_words(lease.close_reason)
    elif order.state is OrderState.CLOSED:
        reason, words = "CANCELLED", _CANCELLED
    elif order.state is OrderState.EXPIRED:
        reason, words = "EXPIRED", _EXPIRED
    else:
        return None
    return LeaseEnding(
        reason=reason,
        who=words.who,
        why=words.why,
        at=None if lease is None else lease.closed_at,
        paid_usd=usd(stream.charged_uusd),
        refunded_usd=None if stream.refunded_uusd is None else usd(stream.refunded_uusd),
        compensation_usd=usd(stream.compensated_uusd),
    )


def _close_words(code: int | None) -> tuple[str, ReasonWords]:
    try:
        reason = CloseReason(code or 0)
    except ValueError:
        return str(code), ReasonWords("network", f"reason {code}")
    return reason.name, CLOSE_WORDS[reason]


def write_events(entries: Sequence[HistoryEntry]) -> LeaseEventList:
    return LeaseEventList(data=[_event(entry) for entry in entries])


def _event(entry: HistoryEntry) -> LeaseEvent:
    return LeaseEvent(
        at=entry.at,
        kind=entry.kind.value,
        who=entry.who,
        text=entry.text,
        reason=entry.reason,
        provider=entry.provider,
        hourly_usd=_usd(entry.hourly_uusd),
        duration_s=entry.duration_s,
        amount_usd=_usd(entry.amount_uusd),
        paid_usd=_usd(entry.paid_uusd),
        refunded_usd=_usd(entry.refunded_uusd),
        compensation_usd=_usd(entry.compensation_uusd),
        tx=entry.tx,
    )


def _usd(uusd: int | None) -> str | None:
    return None if uusd is None else usd(uusd)
