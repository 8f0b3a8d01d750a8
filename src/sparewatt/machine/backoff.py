"""Background tasks, and restarts with exponential back-off: after a service ended, it is started again.

The delay before a restart grows and is jittered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng

FIRST_DELAY_S = 0.5
DELAY_S_MAX = 30.0
HEALTHY_AFTER_S = 60.0
"""A service that ran this long was healthy: its next crash counts as its first."""

_T = TypeVar("_T")
Notify = Callable[[str], None]
"""Shows one line to the person who started the program."""


class Backoff:
    """Delays that double up to DELAY_S_MAX, with jitter: each is between half of its ceiling and all of it."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._ceiling_s = FIRST_DELAY_S

    def next_delay_s(self, *, uptime_s: float) -> float:
        """Delay before the next start of a service that ran for `uptime_s` and then failed."""
        if uptime_s >= HEALTHY_AFTER_S:
            self._ceiling_s = FIRST_DELAY_S
        ceiling_s = self._ceiling_s
        self._ceiling_s = min(2 * ceiling_s, DELAY_S_MAX)
        return ceiling_s * (1 + self._rng.random()) / 2


@asynccontextmanager
async def in_background(work: Coroutine[None, None, _T]) -> AsyncIterator[asyncio.Task[_T]]:
    """Run `work` as a task; it is cancelled when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


class Service(Protocol):
    async def start(self) -> None:
        """Raises StartupError."""

    async def wait(self) -> int:
        """Returns the exit status once the service has ended."""
        ...


@asynccontextmanager
async def restarting(service: Service, *, name: str, clock: Clock, rng: Rng, notify: Notify) -> AsyncIterator[None]:
    """While the block runs, a started `service` that ends is started again. `name` begins a sentence."""
    async with in_background(_restart_on_exit(service, name=name, clock=clock, rng=rng, notify=notify)):
        yield


async def _restart_on_exit(service: Service, *, name: str, clock: Clock, rng: Rng, notify: Notify) -> None:
    backoff, failure = Backoff(rng), ""
    while True:
        started_s = clock.now_s()
        status = await service.wait()
        delay_s = backoff.next_delay_s(uptime_s=clock.now_s() - started_s)
        if not failure:
            notify(f"{name} ended with status {status}; starting it again in {delay_s:.1f} s.")
        await sleep_until(clock, clock.now_s() + delay_s)
        try:
            await service.start()
            failure = ""
        except StartupError as error:
            if error.message != failure:  # a full disk is reported once, however often a start is tried
                notify(error.message)
            failure = error.message
