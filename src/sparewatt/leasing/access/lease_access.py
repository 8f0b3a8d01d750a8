"""A renter's way into a lease: finds the node that has it, and opens a stream there within the bounds.

Only the account that ordered the lease finds it; an operator reads nobody's logs. What a node says about a failure is
passed on as its words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sparewatt.core.clock import Clock, Timer
from sparewatt.core.errors import (
    LeaseNotRunning,
    LeasePortClosed,
    NodeUnreachable,
    SparewattError,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.leasing.access.stream_places import StreamPlaces
from sparewatt.link.traffic import TrafficStream
from sparewatt.market.chain_records import LeaseState, MarketState
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.link.traffic import EndCode, StreamEnd, StreamOpen
from sparewatt.store.lease_orders import LeaseOrderRow

IDLE_S = 3_600.0
"""A stream over which nothing went for so long ends."""
TOTAL_S = 24 * 3_600.0
LOOK_S = 30.0
_PLACED = (LeaseState.PENDING, LeaseState.ACTIVE, LeaseState.PAUSED)


class StreamOpener(Protocol):
    """Implemented by TrafficHub."""

    async def open(self, node_id: NodeId, wanted: StreamOpen) -> TrafficStream: ...


class RentedLeases(Protocol):
    """Implemented by LeaseOrderService."""

    async def find(self, account: AccountId, wanted: str) -> LeaseOrderRow: ...


@dataclass(frozen=True, slots=True)
class LeasePlace:
    account: AccountId
    lease_id: str
    order_id: str
    node_id: NodeId


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseAccess:
    leases: RentedLeases
    view: Callable[[], ChainView]
    """Raises NoChain or ChainUnavailable."""
    streams: StreamOpener
    places: StreamPlaces
    clock: Clock

    async def locate(self, account: AccountId, wanted: str) -> LeasePlace:
        """By id, order id or name. Raises LeaseNotFound, InvalidField, LeaseNotRunning, NoChain or ChainUnavailable."""
        state = self.view().latest
        row = await self.leases.find(account, wanted)
        if row.order_id is None:
            raise LeaseNotRunning("The order is not on the chain yet. Try again in a moment.")
        return LeasePlace(account, row.lease_id, row.order_id, _node_of(state, row.order_id, row.lease_id))

    @asynccontextmanager
    async def open(
        self, place: LeasePlace, wanted: StreamOpen, *, of_visitors: bool = False
    ) -> AsyncIterator[TrafficStream]:
        """An opened stream; it is cancelled at the end of the block. Raises what `error_of` says, NodeUnreachable or
        RateLimited. `of_visitors`: it takes none of the renter's places of this lease.
        """
        with self.places.taken(place.account, f"{place.order_id} visitors" if of_visitors else place.order_id):
            stream = await self.streams.open(place.node_id, wanted)
            limit = _TimeLimit(stream, self.clock)
            try:
                if not stream.is_opened and stream.end is not None and (error := error_of(stream.end)) is not None:
                    raise error
                yield stream
            finally:
                limit.stop()
                stream.cancel()


class _TimeLimit:
    """Ends a stream that is idle, or open for too long, and the task that opened it if it does not notice: one that
    waits for a client which does not read."""

    def __init__(self, stream: TrafficStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._ends_s = clock.now_s() + TOTAL_S
        self._moved_bytes, self._moved_s = stream.moved_bytes, clock.now_s()
        self._task = asyncio.current_task()
        self._timer: Timer = clock.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now_s = self._clock.now_s()
        if self._stream.moved_bytes != self._moved_bytes:
            self._moved_bytes, self._moved_s = self._stream.moved_bytes, now_s
        if now_s >= self._ends_s or now_s - self._moved_s >= IDLE_S:
            self._stream.cancel(StreamEnd(code="idle"))
            if self._task is not None:
                self._timer = self._clock.call_later(LOOK_S, partial(_cancel, self._task))
        else:
            self._timer = self._clock.call_later(LOOK_S, self._look)


def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()


def _node_of(state: MarketState, order_id: str, lease_id: str) -> NodeId:
    lease = state.leases.get(order_id)
    if lease is None:
        raise LeaseNotRunning(f"No machine has this lease yet. 'sparewatt lease show {lease_id}' tells how far it is.")
    if lease.state is LeaseState.CLOSED:
        raise LeaseNotRunning("This lease is closed, and its container is gone with its data.")
    provider = state.providers.get(lease.provider) if lease.provider is not None else None
    if lease.state not in _PLACED or provider is None or provider.node_key is None:
        raise LeaseNotRunning("No machine has this lease right now: a stand-in is to take it over. Try again later.")
    return NodeId(provider.node_key)


_ERRORS: dict[EndCode, tuple[type[SparewattError], str]] = {
    "not_running": (LeaseNotRunning, "The lease has no container. 'sparewatt lease show' tells how it stands."),
    "unknown_lease": (LeaseNotRunning, "Its machine does not run the lease. 'sparewatt lease show' tells more."),
    "unknown_port": (UnprocessableContent, "The order does not list this port."),
    "unreachable": (LeasePortClosed, "The port does not answer. Does the program listen, and on all addresses?"),
    "refused": (UnprocessableContent, "The container does not take this."),
    "idle": (UnprocessableContent, "Nothing went over this stream for an hour, or it was open for a day: it ended."),
    "unavailable": (NodeUnreachable, "The container engine of the machine does not answer. Try again."),
    "too_many": (NodeUnreachable, "Too many streams are open to this machine. Close one, and try again."),
    "lost": (NodeUnreachable, "The connection to the machine of this lease was lost. Try again."),
}


def error_of(end: StreamEnd) -> SparewattError | None:
    """What the renter is told about a stream that ended by itself; None if it ended as it should."""
    if end.code not in _ERRORS:
        return None
    kind, text = _ERRORS[end.code]
    return kind(f"{text} (The machine says: {end.message})" if end.message else text)
