from __future__ import annotations

import asyncio

from sparewatt.core.clock import SystemClock, sleep_until
from sparewatt.testing.clocks import ManualClock
from tests.waiting import turns


async def test_sleep_until_returns_when_due_and_not_before() -> None:
    clock = ManualClock(now_s=100.0)
    sleeper = asyncio.create_task(sleep_until(clock, 105.0))
    await turns()
    clock.advance(4.9)
    await turns()
    assert not sleeper.done()
    clock.advance(0.2)
    await sleeper


async def test_sleep_until_a_past_moment_only_yields_to_the_event_loop() -> None:
    clock, ran = ManualClock(now_s=100.0), asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    await sleep_until(clock, 99.0)
    assert ran.is_set()
    assert clock.pending == 0


async def test_a_cancelled_sleep_cancels_its_timer() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(sleep_until(clock, clock.now_s() + 60))
    await turns()
    assert clock.pending == 1
    sleeper.cancel()
    await asyncio.wait([sleeper])
    assert clock.pending == 0


async def test_a_timer_of_the_system_clock_fires_once_unless_cancelled() -> None:
    clock, rung = SystemClock(), asyncio.Event()
    cancelled: list[int] = []
    clock.call_later(0.0, lambda: cancelled.append(1)).cancel()
    clock.call_later(0.001, rung.set)
    async with asyncio.timeout(20):
        await rung.wait()
    assert not cancelled


def test_the_system_clock_is_monotonic() -> None:
    clock = SystemClock()
    readings = [clock.now_s() for _ in range(1000)]
    assert readings == sorted(readings)
