"""What anyone may call on the market's contracts, and from when on. Pure; times are the chain's, in Unix seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sparewatt.market.accrual import PaymentStream, empty_at_of
from sparewatt.market.chain_records import (
    LeaseRecord,
    LeaseState,
    MarketState,
    OrderRecord,
    OrderState,
    ValidatorRecord,
)
from sparewatt.market.reopening import next_attempt_at
from sparewatt.protocol.contracts.reasons import CloseReason

MINUTES_PER_HOUR = 60


class MarketAct(Enum):
    EXPIRE = "expire"
    REOPEN = "reopen"
    ACTIVATE = "activate"
    SETTLE = "settle"
    RESUME = "resume"
    CLOSE_DURATION = "close_duration"
    CLOSE_EMPTY = "close_empty"
    NO_START = "no_start"


@dataclass(frozen=True, slots=True)
class DueAct:
    act: MarketAct
    subject: str
    """An order's id, or a validator's operator."""
    due_at: int
    """The first second at which the contract takes it."""
    key: str
    """The same for the same act: it is sent once."""


def next_act(state: MarketState, order_id: str, *, attempt_s: int) -> DueAct | None:
    """What comes next for an order if nobody else acts; None for one that waits for its renter or has ended."""
    order = state.orders.get(order_id)
    if order is None:
        return None
    lease = state.leases.get(order_id)
    match order.state:
        case OrderState.OPEN:
            ends_at = order.opened_at[order.attempt] + attempt_s + 1
            return DueAct(MarketAct.EXPIRE, order_id, ends_at, f"expire:{order_id}:{order.attempt}:open")
        case OrderState.MATCHED if lease is not None and lease.state is LeaseState.VACANT:
            return DueAct(MarketAct.EXPIRE, order_id, lease.confirm_by + 1, f"expire:{order_id}:{lease.term}:vacant")
        case OrderState.MATCHED if lease is not None:
            return _of_lease(state, order, lease)
        case OrderState.UNMATCHED:
            return _of_unmatched(state, order, lease)
        case _:
            return None


def _of_lease(state: MarketState, order: OrderRecord, lease: LeaseRecord) -> DueAct | None:
    stream = state.streams.get(order.order_id)
    name = f"{order.order_id}:{lease.term}"
    match lease.state:
        case LeaseState.ACTIVE if stream is not None and stream.rate_uusd:
            empty_at = empty_at_of(stream)
            if empty_at < stream.end_at:
                return DueAct(MarketAct.SETTLE, order.order_id, empty_at, f"settle:{name}:{empty_at}")
            return DueAct(MarketAct.CLOSE_DURATION, order.order_id, stream.end_at, f"over:{name}:{stream.end_at}")
        case LeaseState.PENDING:
            return DueAct(
                MarketAct.NO_START, order.order_id, lease.confirm_by + 1, f"no_start:{name}:{lease.confirm_by}"
            )
        case LeaseState.PAUSED if stream is not None:
            return _of_paused(order, lease, stream)
        case _:
            return None


def _of_paused(order: OrderRecord, lease: LeaseRecord, stream: PaymentStream) -> DueAct | None:
    """A top-up has anyone resume what the empty deposit paused; a deposit that stays empty ends the lease."""
    name = f"{order.order_id}:{lease.term}:{lease.paused_at}"
    if stream.deposit_uusd < max(1, lease.rate_uusd // MINUTES_PER_HOUR):
        ends_at = lease.paused_at + order.terms.empty_grace_s + 1
        return DueAct(MarketAct.CLOSE_EMPTY, order.order_id, ends_at, f"empty:{name}")
    if lease.pause_reason != CloseReason.EMPTY:
        return None
    return DueAct(MarketAct.RESUME, order.order_id, lease.paused_at, f"resume:{name}:{stream.deposit_uusd}")


def _of_unmatched(state: MarketState, order: OrderRecord, lease: LeaseRecord | None) -> DueAct:
    """A new attempt while the renter allows one by anybody, else the end."""
    reopen_at = next_attempt_at(state, order)
    if reopen_at is not None:
        return DueAct(MarketAct.REOPEN, order.order_id, reopen_at, f"reopen:{order.order_id}:{order.attempt + 1}")
    is_used_up = lease is None and order.attempt >= order.max_attempts
    ends_at = order.opened_at[order.attempt] if is_used_up else order.expires_at + 1
    return DueAct(MarketAct.EXPIRE, order.order_id, ends_at, f"expire:{order.order_id}:{order.attempt}:end")


def activation_of(validator: ValidatorRecord, *, activate_s: int) -> DueAct | None:
    """Of stake that waits for its weight."""
    if not validator.pending_uusd or validator.is_jailed:
        return None
    key = f"activate:{validator.operator}:{validator.pending_since}:{validator.pending_uusd}"
    return DueAct(MarketAct.ACTIVATE, validator.operator, validator.pending_since + activate_s, key)


def activations(validators: Mapping[str, ValidatorRecord], *, activate_s: int) -> list[DueAct]:
    found = (activation_of(each, activate_s=activate_s) for each in validators.values())
    return [each for each in found if each is not None]


def soonest(acts: Iterable[DueAct], *, limit: int) -> list[DueAct]:
    return sorted(acts, key=lambda each: (each.due_at, each.key))[:limit]


@dataclass(slots=True)
class ChainTime:
    """The chain's time as it runs on between two blocks: a chain that nobody uses makes none."""

    _block: int = -1
    _unix_s: int = 0
    _seen_s: float = 0.0

    def note(self, block: int, unix_s: int, *, now_s: float) -> None:
        if block != self._block:
            self._block, self._unix_s, self._seen_s = block, unix_s, now_s

    @property
    def of_block(self) -> int:
        return self._unix_s

    def now(self, now_s: float) -> int:
        return self._unix_s + int(now_s - self._seen_s)
