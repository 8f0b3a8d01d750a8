"""What happened to one order and its lease, in the order of time: out of the chain's events, and nobody's word. Pure.

One entry is not an event of the chain: the moment at which 80 % of the deposit was spent follows from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TypeVar

from sparewatt.market.accrual import PaymentStream, empty_at_of, left_at
from sparewatt.market.chain_records import LeaseState, MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.market.lease_billing import LOW_PERCENT
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.reason_words import CLOSE_WORDS, HAND_OVER_WORDS, PAUSE_WORDS, Actor, ReasonWords
from sparewatt.protocol.contracts.reasons import CloseReason, HandOverReason, OrderOutcome

EVENTS_MAX = 2_000
"""Of one lease: a settlement a minute for a day has fewer."""


class HistoryKind(StrEnum):
    ORDERED = "ordered"
    AUCTION_OPENED = "auction_opened"
    """A further one."""
    DEPOSIT_ADDED = "deposit_added"
    MATCHED = "matched"
    UNMATCHED = "unmatched"
    CANDIDATE_SKIPPED = "candidate_skipped"
    PLACED = "placed"
    TAKEN_OVER = "taken_over"
    STARTED = "started"
    DEPOSIT_LOW = "deposit_low"
    PAUSED = "paused"
    RESUMED = "resumed"
    UPDATE_PROPOSED = "update_proposed"
    UPDATED = "updated"
    NOTICE_GIVEN = "notice_given"
    HANDED_OVER = "handed_over"
    UNPLACED = "unplaced"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    at: int
    kind: HistoryKind
    who: Actor
    text: str
    reason: str | None = None
    """The name of a code: RENTER, EMPTY, DOWN, NO_BIDS …"""
    provider: str | None = None
    hourly_uusd: int | None = None
    duration_s: int | None = None
    amount_uusd: int | None = None
    """What was added to the deposit."""
    paid_uusd: int | None = None
    """Of an end: all that was paid from the deposit, …"""
    refunded_uusd: int | None = None
    """… what went back to the renter, …"""
    compensation_uusd: int | None = None
    """… and what the renter got out of a provider's bond: of a hand-over in that one, of an end in all."""
    tx: str | None = None


Writer = Callable[[MarketState, ChainEvent], HistoryEntry | None]
"""From the state before the event."""


def history_of(order_id: str, events: Iterable[ChainEvent], *, now: int) -> list[HistoryEntry]:
    """`events`: all of this order, in the chain's order."""
    state, entries, is_warned = MarketState(), list[HistoryEntry](), False
    for event in events:
        low = _low_entry(state.streams.get(order_id), until=event.unix_s)
        if low is not None and not is_warned:
            entries.append(low)
            is_warned = True
        writer = _WRITERS.get((event.contract, event.event))
        entry = writer(state, event) if writer is not None else None
        apply_event(state, event)
        if entry is not None:
            entries.append(replace(entry, tx=f"0x{event.tx_hash.hex()}"))
        if (event.contract, event.event) in _FILLING:
            is_warned = False
    low = _low_entry(state.streams.get(order_id), until=now)
    if low is not None and not is_warned:
        entries.append(low)
    return [_with_sums(entry, state.streams.get(order_id)) for entry in entries]


def _low_entry(stream: PaymentStream | None, *, until: int) -> HistoryEntry | None:
    """The warning that falls due while a stream runs; None if that is later."""
    low_at = left_at(stream, left_percent=100 - LOW_PERCENT) if stream is not None else None
    if stream is None or low_at is None or low_at > min(until, stream.end_at):
        return None
    empty_at = empty_at_of(stream)
    what = "it is paused when the rest is used up" if empty_at < stream.end_at else "the rest lasts to its end"
    text = f"{LOW_PERCENT} % of the deposit is spent: {what}"
    return HistoryEntry(at=low_at, kind=HistoryKind.DEPOSIT_LOW, who="network", text=text)


_FILLING = frozenset({("escrow", "DepositChanged"), ("escrow", "Compensated")})
_ENDS = frozenset({HistoryKind.CLOSED, HistoryKind.CANCELLED, HistoryKind.EXPIRED})


def _with_sums(entry: HistoryEntry, stream: PaymentStream | None) -> HistoryEntry:
    """An end is followed by its money's events, in the same transaction."""
    if entry.kind not in _ENDS or stream is None:
        return entry
    return replace(
        entry,
        paid_uusd=stream.charged_uusd,
        refunded_uusd=stream.refunded_uusd,
        compensation_uusd=stream.compensated_uusd,
    )


# one writer for each kind of event


def _lookup(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    attempt = event.args["attempt"]
    if attempt == 0:
        return HistoryEntry(at=event.unix_s, kind=HistoryKind.ORDERED, who="renter", text="ordered; its auction opened")
    text = f"auction {attempt + 1} opened"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.AUCTION_OPENED, who="network", text=text)


def _deposit(state: MarketState, event: ChainEvent) -> HistoryEntry:
    order, payer = state.orders.get(event.args["lease_id"]), event.args["payer"]
    is_renter = order is not None and order.renter == payer
    is_first = event.args["lease_id"] not in state.streams
    text = "the deposit was taken" if is_first else "the deposit was topped up"
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.DEPOSIT_ADDED,
        who="renter" if is_renter else "network",
        text=text if is_renter else f"{text} by {payer}",
        amount_uusd=event.args["amount"],
    )


def _matched(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    text = f"certified by {len(event.args['signers'])} validators"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.MATCHED, who="validators", text=text)


def _unmatched(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    reason = _name(OrderOutcome, event.args["reason"])
    return HistoryEntry(
        at=event.unix_s, kind=HistoryKind.UNMATCHED, who="network", text="no provider was found", reason=reason
    )


def _skipped(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    why = "it is suspended" if event.args["suspended"] else "its bond is too small"
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.CANDIDATE_SKIPPED,
        who="network",
        text=f"a candidate was passed over: {why}",
        provider=event.args["provider"],
    )


def _placed(state: MarketState, event: ChainEvent) -> HistoryEntry:
    args, is_first = event.args, event.args["lease_id"] not in state.leases
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.PLACED if is_first else HistoryKind.TAKEN_OVER,
        who="validators" if is_first else "provider",
        text="placed with the winner" if args["position"] == 0 else "taken over by a stand-in",
        provider=args["provider"],
        hourly_uusd=args["rate_uusd"],
    )


def _started(state: MarketState, event: ChainEvent) -> HistoryEntry:
    lease = state.leases.get(event.args["lease_id"])
    text = "started again; the meter runs" if lease is not None and lease.resumed else "started; the meter runs"
    provider = event.args["provider"]
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.STARTED, who="provider", text=text, provider=provider)


def _paused(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    words, reason = _words(PAUSE_WORDS, CloseReason, event.args["reason"])
    text = f"paused: {words.why}; the meter stands"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.PAUSED, who=words.who, text=text, reason=reason)


def _resumed(state: MarketState, event: ChainEvent) -> HistoryEntry:
    lease = state.leases.get(event.args["lease_id"])
    is_by_renter = lease is None or lease.pause_reason == CloseReason.RENTER
    text = "resumed; its provider starts it again"
    who: Actor = "renter" if is_by_renter else "network"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.RESUMED, who=who, text=text)


def _proposed(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    args = event.args
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.UPDATE_PROPOSED,
        who="renter",
        text="a change was proposed to the provider",
        hourly_uusd=args["rate_uusd"],
        duration_s=args["duration_s"],
    )


def _updated(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    args = event.args
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.UPDATED,
        who="provider",
        text="the provider accepted the change",
        hourly_uusd=args["rate_uusd"],
        duration_s=args["duration_s"],
    )


def _noticed(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    text = "the provider gave notice that it wants its machine back"
    left_s = max(0, event.args["may_close_at"] - event.unix_s)
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.NOTICE_GIVEN, who="provider", text=text, duration_s=left_s)


def _handed_over(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    words, reason = _words(HAND_OVER_WORDS, HandOverReason, event.args["reason"])
    return HistoryEntry(
        at=event.unix_s,
        kind=HistoryKind.HANDED_OVER,
        who=words.who,
        text=f"taken from its provider: {words.why}",
        reason=reason,
        provider=event.args["provider"],
        compensation_uusd=event.args["compensation"],
    )


def _unplaced(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    text = "no stand-in is left; it waits for a new auction"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.UNPLACED, who="network", text=text)


def _closed(state: MarketState, event: ChainEvent) -> HistoryEntry:
    words, reason = _words(CLOSE_WORDS, CloseReason, event.args["reason"])
    lease = state.leases.get(event.args["lease_id"])
    never_ran = lease is not None and lease.state is LeaseState.PENDING and not lease.resumed
    text = f"closed: {words.why}{' before it had started' if never_ran else ''}"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.CLOSED, who=words.who, text=text, reason=reason)


def _cancelled(_state: MarketState, event: ChainEvent) -> HistoryEntry:
    text = "the order was withdrawn before it had a provider"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.CANCELLED, who="renter", text=text, reason="CANCELLED")


def _expired(_state: MarketState, event: ChainEvent) -> HistoryEntry | None:
    if not event.args["final"]:
        return None
    text = "the order ended without a provider"
    return HistoryEntry(at=event.unix_s, kind=HistoryKind.EXPIRED, who="network", text=text, reason="EXPIRED")


_Code = TypeVar("_Code", bound=IntEnum)


def _words(table: dict[_Code, ReasonWords], codes: type[_Code], number: int) -> tuple[ReasonWords, str]:
    """Those of a code that this release does not know say its number."""
    try:
        code = codes(number)
    except ValueError:
        return ReasonWords("network", f"reason {number}"), str(number)
    return table.get(code, ReasonWords("network", code.name)), code.name


def _name(codes: type[_Code], number: int) -> str:
    try:
        return codes(number).name
    except ValueError:
        return str(number)


_WRITERS: dict[tuple[str, str], Writer] = {
    ("deployment_order", "PROVIDER_LOOKUP"): _lookup,
    ("deployment_order", "CandidateSkipped"): _skipped,
    ("deployment_order", "OrderUnmatched"): _unmatched,
    ("deployment_order", "AttemptExpired"): _expired,
    ("deployment_order", "OrderCancelled"): _cancelled,
    ("deployment_order", "LeaseCreated"): _placed,
    ("deployment_order", "DeploymentConfirmed"): _started,
    ("deployment_order", "LeasePaused"): _paused,
    ("deployment_order", "LeaseResumed"): _resumed,
    ("deployment_order", "ReclaimNoticed"): _noticed,
    ("deployment_order", "LeaseUnplaced"): _unplaced,
    ("deployment_order", "LeaseHandedOver"): _handed_over,
    ("deployment_order", "LeaseClosed"): _closed,
    ("lease_moves", "UpdateProposed"): _proposed,
    ("lease_moves", "LeaseUpdated"): _updated,
    ("task_manager", "MatchAccepted"): _matched,
    ("escrow", "DepositChanged"): _deposit,
}

HISTORY_EVENTS: tuple[str, ...] = tuple(
    sorted(
        {
            *(f"{contract}.{event}" for contract, event in _WRITERS),
            *(f"escrow.{event}" for event in ("Compensated", "StreamStarted", "Settled", "StreamStopped", "Refunded")),
        }
    )
)
"""Those that are written down, and those that their sums come from."""
