from __future__ import annotations

import asyncio

from sparewatt.core.clock import SystemClock, sleep_until
from sparewatt.testing.clocks import ManualClock
from tests.waiting import turns


async def test_a_sleeper_wakes_at_its_moment_and_not_before() -> None:
    clock = ManualClock(now_s=100.0)
    sleeper = asyncio.create_task(sleep_until(clock, 105.0))
    await turns()
    clock.advance(4.9)
    await turns()
    assert not sleeper.done()
    clock.advance(0.2)
    await sleeper


async def test_a_moment_that_has_passed_is_not_waited_for_but_others_get_their_turn() -> None:
    clock, ran = ManualClock(now_s=100.0), asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await sleep_until(clock, 99.0)
    assert ran.is_set()
    assert clock.pending == 0


async def test_a_sleeper_that_is_cancelled_leaves_no_alarm_behind() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, clock.now_s() + 60))
    await turns()
    assert clock.pending == 1
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert clock.pending == 0


async def test_the_machines_alarm_rings_once_unless_it_is_cancelled() -> None:
    clock, rung = SystemClock(), asyncio.Event()
    cancelled: list[int] = []
    clock.call_later(0.0, lambda: cancelled.append(1)).cancel()
    clock.call_later(0.001, rung.set)
    async with asyncio.timeout(20):
        await rung.wait()
    assert not cancelled


def test_the_machines_clock_never_runs_backwards() -> None:
    clock = SystemClock()
    readings = [clock.now_s() for _ in range(1000)]
    assert readings == sorted(readings)
