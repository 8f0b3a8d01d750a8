"""The back-off schedule: doubling, bounded, jittered, reset after a healthy run; and restarts by it."""

from __future__ import annotations

import asyncio

from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.machine.backoff import DELAY_S_MAX, FIRST_DELAY_S, HEALTHY_AFTER_S, Backoff, restarting
from sparewatt.testing.clocks import ManualClock
from tests.waiting import until


class FixedRng:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value

    def randbytes(self, n: int, /) -> bytes:
        return bytes(n)


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


def test_a_long_healthy_run_resets_the_schedule() -> None:
    backoff = Backoff(FixedRng(1.0))
    for _ in range(8):
        backoff.next_delay_s(uptime_s=0)
    assert backoff.next_delay_s(uptime_s=HEALTHY_AFTER_S) == FIRST_DELAY_S


def test_a_short_healthy_run_does_not_reset_the_schedule() -> None:
    backoff = Backoff(FixedRng(1.0))
    for _ in range(8):
        backoff.next_delay_s(uptime_s=0)
    assert backoff.next_delay_s(uptime_s=HEALTHY_AFTER_S - 0.001) == DELAY_S_MAX


class FlakyService:
    """Ends at once with status 7; its second start fails."""

    def __init__(self) -> None:
        self.starts = 0

    async def start(self) -> None:
        self.starts += 1
        if self.starts == 2:
            raise StartupError("no disk")

    async def wait(self) -> int:
        return 7


async def test_a_service_that_ends_is_restarted_after_the_back_off_until_the_block_ends() -> None:
    service, clock, lines = FlakyService(), ManualClock(), list[str]()
    async with restarting(service, name="It", clock=clock, rng=FixedRng(1.0), notify=lines.append):
        for delay_s in (0.5, 1.0, 2.0):
            await until(lambda: clock.pending == 1)
            clock.advance(delay_s - 0.01)
            await asyncio.sleep(0)
            assert clock.pending == 1
            clock.advance(0.01)
            await until(lambda: clock.pending == 1)
    assert service.starts == 3
    assert clock.pending == 0
    assert lines[:3] == [
        "It ended with status 7; starting it again in 0.5 s.",
        "It ended with status 7; starting it again in 1.0 s.",
        "no disk",
    ]
