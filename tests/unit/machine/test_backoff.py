"""The back-off schedule: doubling, bounded, jittered, and forgiving after health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparewatt.core.clock import SystemClock, Timer
from sparewatt.core.rng import seeded
from sparewatt.machine.backoff import DELAY_S_MAX, FIRST_DELAY_S, HEALTHY_AFTER_S, Backoff, sleep


class FixedRng:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


class RingingClock(SystemClock):
    """Rings at once and remembers for when it was set."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.delays_s.append(delay_s)
        return super().call_later(0, callback)


class StoppedClock(SystemClock):
    """Never rings."""

    def __init__(self) -> None:
        self.timers: list[asyncio.TimerHandle] = []

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        timer = asyncio.get_running_loop().call_later(3600, callback)
        self.timers.append(timer)
        return timer


def test_delays_double_from_half_a_second_to_thirty() -> None:
    backoff = Backoff(FixedRng(1.0))
    delays_s = [backoff.next_delay_s(uptime_s=0) for _ in range(9)]
    assert delays_s == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_delay_is_never_less_than_half_of_its_ceiling() -> None:
    backoff = Backoff(FixedRng(0.0))
    assert [backoff.next_delay_s(uptime_s=0) for _ in range(3)] == [0.25, 0.5, 1]


def test_jitter_differs_between_children() -> None:
    first, second = Backoff(seeded(1)), Backoff(seeded(2))
    assert first.next_delay_s(uptime_s=0) != second.next_delay_s(uptime_s=0)


def test_health_for_long_enough_starts_the_schedule_anew() -> None:
    backoff = Backoff(FixedRng(1.0))
    for _ in range(8):
        backoff.next_delay_s(uptime_s=0)
    assert backoff.next_delay_s(uptime_s=HEALTHY_AFTER_S) == FIRST_DELAY_S


def test_health_for_too_short_does_not() -> None:
    backoff = Backoff(FixedRng(1.0))
    for _ in range(8):
        backoff.next_delay_s(uptime_s=0)
    assert backoff.next_delay_s(uptime_s=HEALTHY_AFTER_S - 0.001) == DELAY_S_MAX


async def test_a_pause_lasts_until_its_clock_rings() -> None:
    clock = RingingClock()
    await sleep(7.5, clock=clock)
    assert clock.delays_s == [7.5]


async def test_a_cancelled_pause_takes_its_alarm_back() -> None:
    clock = StoppedClock()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sleep(7.5, clock=clock)
    assert [timer.cancelled() for timer in clock.timers] == [True]
