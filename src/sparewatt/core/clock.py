"""Time comes in by argument, so that a test or the simulator can supply its own clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Two readings and one timer: the only access to time that product code has."""

    def now_s(self) -> float:
        """Monotonic seconds, for durations and deadlines inside a process."""
        ...

    def unix_s(self) -> float:
        """Seconds since 1970, for what is stored or shown."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once, `delay_s` from now, unless the timer is cancelled first."""
        ...


async def sleep_until(clock: Clock, at_s: float) -> None:
    """Return at `at_s` or later. Always yields to the event loop, also when `at_s` has passed."""
    delay_s = at_s - clock.now_s()
    if delay_s <= 0:
        await asyncio.sleep(0)
        return
    fired = asyncio.Event()
    timer = clock.call_later(delay_s, fired.set)
    try:
        await fired.wait()
    finally:
        timer.cancel()


class SystemClock:
    """The operating system's clock, with timers on the running event loop.

    A request reads the time often, so the readings are the system's own functions without a wrapper, and the loop is
    looked up once: `get_running_loop` takes a system call (getpid).
    """

    _loop: asyncio.AbstractEventLoop | None = None

    now_s = staticmethod(time.monotonic)
    unix_s = staticmethod(time.time)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        loop = self._loop
        if loop is None or not loop.is_running():
            loop = self._loop = asyncio.get_running_loop()
        return loop.call_later(delay_s, callback)
