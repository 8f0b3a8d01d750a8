"""Drives a `BatchScheduler` on a clock: one timer for all streams, which wakes those that got tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparewatt.core.clock import Clock, Timer
from sparewatt.sim.servers.facts import ServerLoad
from sparewatt.testing.engine.batching import BatchedSequence, BatchLimits, BatchScheduler, StepCurve
from sparewatt.testing.engine.resources import QUEUE_MAX, STEP_S_MIN, ModelLoader
from sparewatt.testing.engine.settings import EngineQueueFull, EngineSettings, EngineStats


class BatchStream:
    """The tokens of one sequence, as they fall due. Implements TokenSource."""

    def __init__(self, sequence: BatchedSequence) -> None:
        self.sequence = sequence
        self._news = asyncio.Event()

    def notify(self) -> None:
        self._news.set()

    async def next_due(self, n_done: int) -> int:
        """Wait for the token after `n_done`; returns how many there are, always more than `n_done`."""
        while self.sequence.written <= n_done:
            self._news.clear()
            await self._news.wait()
        return self.sequence.written


class BatchDriver:
    """Implements TokenGenerator."""

    def __init__(self, clock: Clock, *, settings: EngineSettings, stats: EngineStats, loader: ModelLoader) -> None:
        self._clock = clock
        self._scheduler = BatchScheduler(batch_limits(settings), step_curve(settings))
        self._stats = stats
        self._loader = loader
        self._streams: dict[BatchedSequence, BatchStream] = {}
        self._timer: Timer | None = None
        self._woke_s = float("-inf")

    @asynccontextmanager
    async def generate(
        self, *, prompt_tokens: int, cached_tokens: int = 0, new_tokens: int
    ) -> AsyncIterator[BatchStream]:
        if len(self._scheduler.waiting) >= QUEUE_MAX:
            raise EngineQueueFull(f"{QUEUE_MAX} requests are already waiting.")
        await self._loader.use()
        self._advance()
        sequence = self._scheduler.submit(
            self._clock.now_s(), prompt_tokens=prompt_tokens, cached_tokens=cached_tokens, new_tokens=new_tokens
        )
        stream = self._streams[sequence] = BatchStream(sequence)
        self._count()
        self._arm()
        has_finished = False
        try:
            await stream.next_due(0)
            yield stream
            has_finished = True
        finally:
            del self._streams[sequence]
            self._advance()
            self._scheduler.cancel(sequence)
            self._stats.finished += has_finished
            self._stats.cancelled += not has_finished
            self._count()

    def busy_slots(self) -> list[bool]:
        load = self.load()
        return [slot is not None for slot in load.slots] or [True] * load.running

    def load(self) -> ServerLoad:
        self._advance()
        return self._scheduler.load()

    def _wake(self) -> None:
        self._timer = None
        self._woke_s = self._clock.now_s()
        self._advance()
        self._arm()

    def _advance(self) -> None:
        for _, sequence in self._scheduler.advance(self._clock.now_s()):
            if (stream := self._streams.get(sequence)) is not None:
                stream.notify()
        self._count()

    def _arm(self) -> None:
        """At most one wake-up in `STEP_S_MIN`: iterations shorter than that share one."""
        due_s = self._scheduler.due_s
        if self._timer is None and due_s is not None:
            at_s = max(due_s, self._woke_s + STEP_S_MIN)
            self._timer = self._clock.call_later(max(0.0, at_s - self._clock.now_s()), self._wake)

    def _count(self) -> None:
        stats = self._stats
        stats.running, stats.queued = len(self._scheduler.running), len(self._scheduler.waiting)
        stats.started = stats.running + stats.finished + stats.cancelled


def batch_limits(settings: EngineSettings) -> BatchLimits:
    """Raises ValueError if they contradict each other."""
    is_slots = settings.engine_kind == "slots"
    return BatchLimits(
        kind="slots" if is_slots else "batching",
        seqs_max=settings.slots if is_slots else settings.max_num_seqs,
        chunk_tokens=settings.chunk_tokens,
        context_length=settings.n_ctx,
        kv_tokens=0 if is_slots else settings.kv_tokens,
        separate_prefill=settings.separate_prefill,
    )


def step_curve(settings: EngineSettings) -> StepCurve:
    return StepCurve(
        step_s=settings.step_s,
        step_per_job_s=settings.step_per_job_s,
        step_per_token_s=settings.step_per_token_s,
        prefill_fixed_s=settings.prefill_fixed_s,
        prefill_token_s=settings.prefill_token_s,
        prefill_square_s=settings.prefill_square_s,
    )
