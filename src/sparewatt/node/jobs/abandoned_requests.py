"""Requests whose client left while the model server read their prompt: it may go on with them for a while.

A server notices a closed connection between two batches of a prompt, which take seconds on a slow machine. Until it is
seen to be free, the node counts such a request as work that others brought, so that no job is sent into the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.link.node_end import IncomingJob
from sparewatt.node.backends.backend import Backend, BackendError, BackendTimeout

ABANDONED_S_MAX = 60.0
"""Then it is no longer counted as this node's: if the server still reports it, it is foreign."""
POLLS_S = (0.25, 0.5)
"""The first polls. llama.cpp looks for closed connections when nothing was asked of it for a second: see the next."""
POLL_S = 1.2


@dataclass(slots=True, eq=False)
class AbandonedRequests:
    """In the order in which their clients left."""

    backend: Backend
    clock: Clock
    live: Callable[[], int]
    """How many requests the node has at the server besides these."""
    on_released: Callable[[IncomingJob], None]
    """Called for each that the server has given up."""
    jobs: dict[IncomingJob, float] = field(init=False, default_factory=dict)
    """With the time until which each is counted, at a server that does not report its load."""
    _left_at_s: float = field(init=False, default=0.0)
    _polls: int = field(init=False, default=0)
    _watch: asyncio.Task[None] | None = field(init=False, default=None)

    def add(self, job: IncomingJob, *, left_to_read_s: float) -> None:
        """`left_to_read_s`: of its prompt, by what is known of the server's speed."""
        self._left_at_s, self._polls = self.clock.now_s(), 0
        self.jobs[job] = self._left_at_s + left_to_read_s
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_server())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _watch_server(self) -> None:
        while self.jobs:
            wait_s = POLLS_S[self._polls] if self._polls < len(POLLS_S) else POLL_S
            self._polls += 1
            await sleep_until(self.clock, self.clock.now_s() + wait_s)
            for job in self._released(await self._still_running()):
                del self.jobs[job]
                self.on_released(job)

    async def _still_running(self) -> int | None:
        """How many of the server's requests are none of the live ones; None if it does not report them."""
        live = self.live()
        try:
            load = await self.backend.load()
        except BackendTimeout:  # it is too busy to answer
            return len(self.jobs)
        except BackendError:
            return None
        return max(0, load.running + load.queued - max(live, self.live())) if load is not None else None

    def _released(self, still_running: int | None) -> list[IncomingJob]:
        """Those that the server has given up, by its own count where it has one; the oldest first."""
        now_s = self.clock.now_s()
        if now_s - self._left_at_s >= ABANDONED_S_MAX:
            return list(self.jobs)
        if still_running is None:
            return [job for job, until_s in self.jobs.items() if now_s >= until_s]
        return list(self.jobs)[: max(0, len(self.jobs) - still_running)]
