"""Who reaches which lease, what is told if it cannot be reached, and when a stream ends by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparewatt.core.errors import (
    LeaseNotFound,
    LeaseNotRunning,
    LeasePortClosed,
    NodeUnreachable,
    RateLimited,
    UnprocessableContent,
)
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.leasing.access import stream_places
from sparewatt.leasing.access.lease_access import IDLE_S, LOOK_S, TOTAL_S, LeaseAccess, error_of
from sparewatt.leasing.access.stream_places import StreamPlaces
from sparewatt.link.traffic import TrafficLink, TrafficStream
from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.protocol.link.traffic import EndCode, LogsOpen, StreamEnd, StreamOpen
from sparewatt.store.lease_orders import LeaseOrderRow
from sparewatt.testing.clocks import ManualClock
from tests.unit.market.market_events import NODE_KEY, ORDER, accepted, created, deposited, lookup, registered
from tests.waiting import turns

ME, OTHER = AccountId("acc_me"), AccountId("acc_other")
MATCHED = [*registered(), lookup(), deposited(), accepted(), created()]
WANTED = LogsOpen(order_id=ORDER)


@dataclass(slots=True)
class Leases:
    """Implements RentedLeases: one lease, of one account."""

    order_id: str | None = ORDER

    async def find(self, account: AccountId, wanted: str) -> LeaseOrderRow:
        if (account, wanted) != (ME, "web"):
            raise LeaseNotFound("You have no such lease.")
        return cast(LeaseOrderRow, SimpleNamespace(lease_id="lease-1", order_id=self.order_id))


@dataclass(slots=True)
class Opener:
    """Implements StreamOpener: every stream is answered with `end`, or opened."""

    end: StreamEnd | None = None
    asked: list[tuple[NodeId, StreamOpen]] = field(default_factory=list)

    async def open(self, node_id: NodeId, wanted: StreamOpen) -> TrafficStream:
        self.asked.append((node_id, wanted))
        stream = TrafficLink().open(wanted)
        stream.is_opened = self.end is None
        stream.end = self.end
        return stream


def access_of(
    events: list[Any] | None = None, *, opener: Opener | None = None, leases: Leases | None = None
) -> tuple[LeaseAccess, ManualClock]:
    clock = ManualClock()
    state = MarketState()
    for event in MATCHED if events is None else events:
        apply_event(state, event)
    made = LeaseAccess(
        leases=leases or Leases(),
        view=lambda: cast(Any, SimpleNamespace(latest=state)),
        streams=opener or Opener(),
        places=StreamPlaces(),
        clock=clock,
    )
    return made, clock


async def test_a_renter_reaches_the_node_of_the_provider_that_has_the_lease() -> None:
    opener = Opener()
    access, _ = access_of(opener=opener)
    place = await access.locate(ME, "web")
    assert (place.lease_id, place.order_id, place.node_id) == ("lease-1", ORDER, NODE_KEY)
    async with access.open(place, WANTED) as stream:
        assert stream.is_opened
    assert stream.end == StreamEnd(code="cancelled")
    assert opener.asked == [(NODE_KEY, WANTED)]


async def test_nobody_else_finds_it() -> None:
    access, _ = access_of()
    with pytest.raises(LeaseNotFound):
        await access.locate(OTHER, "web")


async def test_an_order_without_a_machine_says_so() -> None:
    access, _ = access_of([*registered(), lookup()])
    with pytest.raises(LeaseNotRunning, match="No machine has this lease yet"):
        await access.locate(ME, "web")


async def test_an_order_that_is_not_on_chain_says_so() -> None:
    access, _ = access_of(leases=Leases(order_id=None))
    with pytest.raises(LeaseNotRunning, match="not on the chain yet"):
        await access.locate(ME, "web")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not_running", LeaseNotRunning),
        ("unknown_lease", LeaseNotRunning),
        ("unknown_port", UnprocessableContent),
        ("unreachable", LeasePortClosed),
        ("refused", UnprocessableContent),
        ("unavailable", NodeUnreachable),
        ("too_many", NodeUnreachable),
        ("lost", NodeUnreachable),
        ("idle", UnprocessableContent),
    ],
)
async def test_what_the_machine_says_is_passed_on_in_its_words(code: EndCode, kind: type[Exception]) -> None:
    access, _ = access_of(opener=Opener(StreamEnd(code=code, message="its words")))
    place = await access.locate(ME, "web")
    with pytest.raises(kind, match="its words"):
        async with access.open(place, WANTED):
            pass
    assert not access.places._by_lease


def test_a_stream_that_ended_as_it_should_is_no_error() -> None:
    assert error_of(StreamEnd()) is None
    assert error_of(StreamEnd(code="cancelled")) is None


async def test_one_stream_too_many_is_refused_before_the_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_places, "STREAMS_PER_PROCESS", 1)
    opener = Opener()
    access, _ = access_of(opener=opener)
    place = await access.locate(ME, "web")
    async with access.open(place, WANTED):
        with pytest.raises(RateLimited):
            async with access.open(place, WANTED):
                pass
    assert len(opener.asked) == 1


async def test_visitors_of_a_site_take_none_of_the_renters_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_places, "STREAMS_PER_LEASE", 1)
    access, _ = access_of()
    place = await access.locate(ME, "web")
    async with access.open(place, WANTED, of_visitors=True):
        with pytest.raises(RateLimited):
            async with access.open(place, WANTED, of_visitors=True):
                pass
        async with access.open(place, WANTED) as own:
            assert own.is_opened


async def test_whoever_does_not_notice_the_end_of_a_stream_is_cancelled() -> None:
    """As a handler that writes to a client which does not read."""
    access, clock = access_of()
    place = await access.locate(ME, "web")

    async def hang() -> None:
        async with access.open(place, WANTED):
            await asyncio.Event().wait()

    hanging = asyncio.create_task(hang())
    await turns()
    clock.advance(IDLE_S)
    await turns()
    assert not hanging.done()
    clock.advance(LOOK_S)
    await turns()
    assert hanging.cancelled()
    assert not access.places._by_lease


async def test_an_idle_stream_ends_and_one_with_traffic_goes_on_for_a_day() -> None:
    access, clock = access_of()
    place = await access.locate(ME, "web")
    async with access.open(place, WANTED) as idle:
        clock.advance(IDLE_S - LOOK_S)
        ends = [idle.end]
        clock.advance(LOOK_S)
        ends.append(idle.end)
    assert ends == [None, StreamEnd(code="idle")]
    async with access.open(place, WANTED) as busy:
        for _ in range(int(TOTAL_S // LOOK_S) - 1):
            busy.moved_bytes += 1
            clock.advance(LOOK_S)
        ends = [busy.end]
        clock.advance(LOOK_S)
        ends.append(busy.end)
    assert ends == [None, StreamEnd(code="idle")]
    assert clock.pending == 0
