"""The fold of the escrow's events: deposits, streams of pay, what was paid, compensated and refunded. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparewatt.market.accrual import PaymentStream, paid_until_of
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.contracts.chain_events import ChainEvent


def _deposit_changed(state: MarketState, event: ChainEvent) -> None:
    """Also the first event of an order's money: it comes after the order's own."""
    lease_id = event.args["lease_id"]
    if lease_id in state.orders:
        old = state.streams.get(lease_id, PaymentStream(0))
        deposited, deposit = old.deposited_uusd + event.args["amount"], event.args["deposit"]
        state.streams[lease_id] = replace(old, deposit_uusd=deposit, deposited_uusd=deposited, filled_uusd=deposit)


def _compensated(stream: PaymentStream, event: ChainEvent) -> PaymentStream:
    compensated, deposit = stream.compensated_uusd + event.args["amount"], event.args["deposit"]
    return replace(stream, deposit_uusd=deposit, compensated_uusd=compensated, filled_uusd=deposit)


_StreamChange = Callable[[PaymentStream, ChainEvent], PaymentStream]


def _of_stream(change: _StreamChange) -> Callable[[MarketState, ChainEvent], None]:
    def apply(state: MarketState, event: ChainEvent) -> None:
        stream = state.streams.get(event.args["lease_id"])
        if stream is not None:
            state.streams[event.args["lease_id"]] = change(stream, event)

    return apply


def _stream_started(stream: PaymentStream, event: ChainEvent) -> PaymentStream:
    end_at = event.args["end_at"]
    return replace(stream, rate_uusd=event.args["rate_uusd"], since=event.unix_s, end_at=end_at, paid_uusd=0)


def _stream_settled(stream: PaymentStream, event: ChainEvent) -> PaymentStream:
    """A renter that closes before the start pays as well, without a stream that runs."""
    amount = event.args["amount"]
    paid = stream.paid_uusd + amount if stream.rate_uusd else stream.paid_uusd
    charged = stream.charged_uusd + amount
    payee, net = event.args["payee"], amount - event.args["fee"]
    return replace(
        stream,
        deposit_uusd=event.args["deposit"],
        paid_uusd=paid,
        charged_uusd=charged,
        fee_uusd=stream.fee_uusd + event.args["fee"],
        net_of={**stream.net_of, payee: stream.net_of.get(payee, 0) + net},
    )


def _stream_stopped(stream: PaymentStream, _event: ChainEvent) -> PaymentStream:
    return replace(stream, rate_uusd=0, since=0, end_at=0, paid_uusd=0, paid_until=paid_until_of(stream))


def _refunded(stream: PaymentStream, event: ChainEvent) -> PaymentStream:
    return replace(stream, deposit_uusd=0, refunded_uusd=event.args["amount"])


STREAM_HANDLERS: dict[tuple[str, str], Callable[[MarketState, ChainEvent], None]] = {
    ("escrow", "DepositChanged"): _deposit_changed,
    ("escrow", "Compensated"): _of_stream(_compensated),
    ("escrow", "StreamStarted"): _of_stream(_stream_started),
    ("escrow", "Settled"): _of_stream(_stream_settled),
    ("escrow", "StreamStopped"): _of_stream(_stream_stopped),
    ("escrow", "Refunded"): _of_stream(_refunded),
}
