"""Inference that gives way to a lease and comes back: when, in which order, and what is in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock, Timer
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.giving_way import GivingWay, ServerPlace, lease_in_the_way
from sparewatt.node.leases.machine.records import MachineEntry
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.node.leases.reservations import ReservationState
from tests.waiting import until

ORDER, OTHER = "0x" + "1" * 64, "0x" + "2" * 64
OFFERED = LeaseCapacity(gpus=2, cpu_milli=4_000)
PROCESSORS = ServerPlace(is_local=True, cards=frozenset(), used=frozenset())
TWO_CARDS = ServerPlace(is_local=True, cards=frozenset("01"), used=frozenset("0"))
SPEED = 100.0


def entry(order: str = ORDER, *, state: ReservationState = ReservationState.HELD, **has: Any) -> MachineEntry:
    return MachineEntry(order=order, attempt=0, state=state, **has)


@pytest.mark.parametrize(
    ("entries", "place", "found"),
    [
        ([entry(cpu_milli=4_000)], PROCESSORS, ORDER),
        ([entry(cpu_milli=3_900)], PROCESSORS, None),
        ([entry(cpu_milli=1_000), entry(OTHER, cpu_milli=3_000)], PROCESSORS, OTHER),
        ([entry(cpu_milli=4_000, state=ReservationState.BIDDING)], PROCESSORS, None),
        ([], PROCESSORS, None),
        ([entry(cpu_milli=4_000)], ServerPlace(is_local=False, cards=frozenset(), used=frozenset()), None),
        ([entry(cpu_milli=4_000)], TWO_CARDS, None),
        ([entry(gpus=1, cards=("1",))], TWO_CARDS, None),
        ([entry(gpus=1, cards=("0",))], TWO_CARDS, ORDER),
        ([entry(gpus=2, cards=("0", "1"))], ServerPlace(is_local=True, cards=frozenset("01"), used=frozenset()), ORDER),
        ([entry(gpus=1, cards=("0",))], ServerPlace(is_local=False, cards=frozenset("0"), used=frozenset("0")), None),
    ],
)
def test_what_is_in_the_way(entries: list[MachineEntry], place: ServerPlace, found: str | None) -> None:
    assert lease_in_the_way(entries, place, offered=OFFERED) == found


def test_a_node_that_offers_no_processors_gives_way_to_none() -> None:
    assert lease_in_the_way([entry(disk_mib=1)], PROCESSORS, offered=LeaseCapacity()) is None


class FastClock(SystemClock):
    def now_s(self) -> float:
        return SystemClock.now_s() * SPEED

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(delay_s / SPEED, callback)


class Machine:
    """Implements Inference and CardUser: everything that happens, in order."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.needed_by: str | None = None
        self.used: frozenset[str] = frozenset()
        self.leaves = self.comes_back = True

    def stop_taking(self, order_id: str) -> None:
        self.happened.append("stop taking")

    def break_off(self, order_id: str) -> int:
        self.happened.append("break off")
        return 4

    def take_again(self) -> None:
        self.happened.append("take again")

    async def leave(self) -> None:
        self.happened.append("leave")
        if self.leaves:
            self.used = frozenset()

    async def come_back(self) -> None:
        if not self.comes_back:
            self.comes_back = True
            raise NoRoom("it does not start")
        self.happened.append("come back")


@asynccontextmanager
async def giving_way(machine: Machine) -> AsyncIterator[GivingWay]:
    way = GivingWay(
        inference=machine,
        needed_by=lambda: machine.needed_by,
        used_cards=lambda: machine.used,
        clock=FastClock(),
        notify=lambda _: None,
        card_user=lambda: machine,
    )
    work = asyncio.create_task(way.run())
    await until(lambda: "come back" in machine.happened)
    machine.happened.clear()
    try:
        yield way
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_new_jobs_stop_at_once_and_answers_a_moment_later() -> None:
    machine = Machine()
    async with giving_way(machine) as way:
        machine.needed_by = ORDER
        way.check()
        assert (machine.happened, way.order_id) == (["stop taking"], ORDER)
        await way.make_free(())
        assert machine.happened == ["stop taking", "break off"]
        await way.make_free(())
        way.check()
        assert machine.happened == ["stop taking", "break off"], "once"
        machine.needed_by = None
        way.check()
        await until(lambda: machine.happened[-1] == "take again")
        assert machine.happened[2:] == ["come back", "take again"]
        assert way.order_id is None


async def test_answers_are_handed_over_also_before_the_lease_starts() -> None:
    machine = Machine()
    async with giving_way(machine) as way:
        machine.needed_by = ORDER
        way.check()
        await until(lambda: machine.happened == ["stop taking", "break off"])
        machine.needed_by = OTHER
        way.check()
        machine.needed_by = None
        way.check()
        await until(lambda: machine.happened[-1] == "take again")
        assert machine.happened.count("stop taking") == 1


async def test_a_lease_beside_inference_disturbs_nothing() -> None:
    machine = Machine()
    async with giving_way(machine) as way:
        way.check()
        await way.make_free(())
        assert machine.happened == []


async def test_what_sits_on_a_card_leaves_it_and_else_the_lease_does_not_start() -> None:
    machine = Machine()
    async with giving_way(machine) as way:
        machine.needed_by, machine.used = ORDER, frozenset("0")
        await way.make_free(("0",))
        assert machine.happened == ["stop taking", "break off", "leave"]
        await way.make_free(("0",))
        assert machine.happened.count("leave") == 1, "nothing sits there any more"
        machine.used, machine.leaves = frozenset("0"), False
        with pytest.raises(NoRoom, match="GPU 0"):
            await way.make_free(("0",))


async def test_a_server_that_does_not_come_back_is_tried_again() -> None:
    machine = Machine()
    async with giving_way(machine) as way:
        machine.needed_by = ORDER
        await way.make_free(())
        machine.needed_by, machine.comes_back = None, False
        way.check()
        await until(lambda: machine.happened[-1] == "take again")
