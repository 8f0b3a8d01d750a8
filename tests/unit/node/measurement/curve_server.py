"""A model server on a clock of its own, whose speed is exactly a given curve: what a meter finds can be compared.

Prompts are read one after the other at the curve's pace beside answers; answers go on at theirs meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sparewatt.node.backends.backend import BackendLoad, BackendReply
from sparewatt.protocol.link.node_report import Speed
from tests.unit.node.rig import ScriptedBackend

TICKS = 30
"""So many turns of the event loop until everything that is ready has run."""
TEMPLATE_TOKENS = 7


@dataclass(eq=False)
class _VirtualTimer:
    callback: Callable[[], None] | None

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """Implements Clock. While `run` drives it, time jumps to the next timer whenever nothing else can run."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        return self._now_s

    def unix_s(self) -> float:
        return 1_750_000_000.0 + self._now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _VirtualTimer:
        timer = _VirtualTimer(callback)
        heapq.heappush(self._timers, (self._now_s + max(0.0, delay_s), next(self._order), timer))
        return timer

    async def drive(self) -> None:
        while True:
            for _ in range(TICKS):
                await asyncio.sleep(0)
            if self._timers:
                due_s, _, timer = heapq.heappop(self._timers)
                if timer.callback is not None:
                    self._now_s = max(self._now_s, due_s)
                    timer.callback()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        driver = asyncio.create_task(self.drive())
        try:
            async with asyncio.timeout(20):
                yield
        finally:
            driver.cancel()


@dataclass(eq=False)
class _Job:
    prompt_tokens: int
    max_tokens: int
    to_read_s: float
    written: int = 0
    step_share: float = 0.0
    """Of its next token."""
    events: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


class CurveServer(ScriptedBackend):
    """`slots` answers at once."""

    def __init__(self, clock: VirtualClock, curve: Speed, *, slots: int = 64, context: int = 1 << 20) -> None:
        super().__init__()
        self._clock = clock
        self.curve = curve
        self.slots_max = slots
        self.context = context
        self.others = 0
        """Requests of other clients, as its counters show them."""
        self.tokens_per_word = 1
        self.answer_tokens = 10_000
        self.on_post: Callable[[], None] = lambda: None
        self.jobs: list[_Job] = []
        self.prompt_lengths: list[int] = []
        self._timer: object | None = None
        self._since_s = 0.0

    async def load(self) -> BackendLoad | None:
        return BackendLoad(running=len(self.jobs) + self.others, slots=self.slots_max)

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        self.on_post()
        request = json.loads(body)
        text = request["messages"][0]["content"] if "messages" in request else request["input"]
        tokens = self.tokens_per_word * len(text.split()) + TEMPLATE_TOKENS
        if tokens > self.context:
            yield BackendReply(400, "application/json", self._stream())
            return
        self.bodies.append(body)
        self.prompt_lengths.append(tokens)
        job = _Job(tokens, min(request.get("max_tokens", 1), self.answer_tokens), self.curve.prefill_s(tokens))
        self._advance()
        self.jobs.append(job)
        self._plan()
        try:
            yield BackendReply(200, "text/event-stream", self._reply(job, path))
        finally:
            self._advance()
            if job in self.jobs:
                self.jobs.remove(job)
            self._plan()

    async def _reply(self, job: _Job, path: str) -> AsyncIterator[bytes]:
        for _ in range(job.max_tokens):
            await job.events.get()
            if path == "/v1/chat/completions":
                yield b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
        usage = {"prompt_tokens": job.prompt_tokens, "completion_tokens": job.max_tokens}
        if path == "/v1/chat/completions":
            yield b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"
        else:
            yield json.dumps({"data": [], "usage": usage | {"total_tokens": job.prompt_tokens}}).encode()

    # the engine: fluid between events

    def _running(self) -> list[_Job]:
        return self.jobs[: self.slots_max]

    def _rates(self) -> tuple[_Job | None, float, list[_Job], float]:
        """Who is read and how fast, who writes and how many steps per second."""
        reading = next((job for job in self._running() if not job.written), None)
        writing = [job for job in self._running() if job.written]
        context = sum(job.prompt_tokens + job.written for job in writing)
        steps_s = 1 / self.curve.step_s(len(writing), context) if writing else 0.0
        if reading is not None and writing:
            return reading, self.curve.prefill_pace or 1.0, writing, steps_s * (self.curve.decode_pace or 1.0)
        return reading, 1.0, writing, steps_s

    def _advance(self) -> None:
        passed_s, self._since_s = self._clock.now_s() - self._since_s, self._clock.now_s()
        reading, pace, writing, steps_s = self._rates()
        if reading is not None:
            reading.to_read_s -= passed_s * pace
        for job in writing:
            job.step_share += passed_s * steps_s
        for job in [*writing, *([reading] if reading is not None else [])]:
            self._emit(job)

    def _emit(self, job: _Job) -> None:
        if not job.written and job.to_read_s <= 1e-9:
            job.written = 1
            job.events.put_nowait(1)
        while job.step_share >= 1 - 1e-9 and job.written < job.max_tokens:
            job.written, job.step_share = job.written + 1, job.step_share - 1
            job.events.put_nowait(1)
        if job.written >= job.max_tokens and job in self.jobs:
            self.jobs.remove(job)

    def _plan(self) -> None:
        """Wake up at the next event."""
        if isinstance(self._timer, _VirtualTimer):
            self._timer.cancel()
        reading, pace, writing, steps_s = self._rates()
        waits = [reading.to_read_s / pace] if reading is not None else []
        waits += [(1 - job.step_share) / steps_s for job in writing]
        wait_s = min(waits, default=math.inf)
        if wait_s < math.inf:
            self._timer = self._clock.call_later(wait_s, self._on_event)

    def _on_event(self) -> None:
        self._advance()
        self._plan()
