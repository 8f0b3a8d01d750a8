"""Time comes in by argument, so that a test or the simulator can supply its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that was scheduled and can still be taken back."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Two readings and one alarm: all the time that product code may know."""

    def now_s(self) -> float:
        """Seconds that never run backwards; for durations and deadlines inside a process."""
        ...

    def unix_s(self) -> float:
        """Wall-clock seconds since 1970; for what is stored or shown."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once, `delay_s` from now, unless it is cancelled first."""
        ...


async def sleep_until(clock: Clock, at_s: float) -> None:
    """Return at `at_s` or later, and always after other tasks had a turn."""
    delay_s = at_s - clock.now_s()
    if delay_s <= 0:
        await asyncio.sleep(0)
        return
    rung = asyncio.get_running_loop().create_future()
    timer = clock.call_later(delay_s, lambda: None if rung.done() else rung.set_result(None))
    try:
        await rung
    finally:
        timer.cancel()


class SystemClock:
    """The machine's clock; alarms ring on the running event loop, which is looked up once: that takes a system call.

    Its readings are the system's own functions, without one of ours around them: a request asks for the time often.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    now_s = staticmethod(time.monotonic)
    unix_s = staticmethod(time.time)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        loop = self._loop
        if loop is None or not loop.is_running():
            loop = self._loop = asyncio.get_running_loop()
        return loop.call_later(delay_s, callback)
