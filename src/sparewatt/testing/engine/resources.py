"""What limits a model server: its slots, its prefix cache, the time to load a model, and its token rate.

All waiting is on a clock that comes in by argument.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.testing.engine.settings import EngineQueueFull, EngineSettings, EngineStats, ModelStillLoading

QUEUE_MAX = 10_000
"""Requests that may wait for a slot; a test that needs more is wrong."""

STEP_S_MIN = 0.002
"""At shorter intervals several tokens share a wake-up, since a timer costs more than a token."""

UNPACED_STEPS = 64
"""Tokens in one go if there is no rate; then other streams run."""

BLOCK_TOKENS = 16
"""As in vLLM: only whole blocks are cached, each under a hash of all tokens up to its end."""
BLOCK_HASH_BYTES = 16


class EngineSlots:
    """Assigns slots, lowest number first, with a first-come queue; keeps the counts in `EngineStats`."""

    def __init__(self, count: int, stats: EngineStats) -> None:
        self._count = count
        self._stats = stats
        self._free = list(range(count))
        self._semaphore = asyncio.Semaphore(count)

    def busy(self) -> list[bool]:
        """For each slot whether it is in use."""
        free = set(self._free)
        return [slot not in free for slot in range(self._count)]

    @asynccontextmanager
    async def occupy(self) -> AsyncIterator[None]:
        """Use a slot. Leaving by an exception or a cancellation counts as cancelled."""
        await self._acquire()
        slot = heappop(self._free)
        self._stats.started += 1
        self._stats.running += 1
        has_finished = False
        try:
            yield
            has_finished = True
        finally:
            self._stats.finished += has_finished
            self._stats.cancelled += not has_finished
            self._stats.running -= 1
            heappush(self._free, slot)
            self._semaphore.release()

    async def _acquire(self) -> None:
        if self._stats.queued >= QUEUE_MAX:
            raise EngineQueueFull(f"{QUEUE_MAX} requests are already waiting.")
        self._stats.queued += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._stats.queued -= 1


class EnginePrefixCache:
    """Beginnings of prompts that need no prefill again; the least recently used blocks are evicted."""

    def __init__(self, capacity_tokens: int) -> None:
        self._blocks_max = capacity_tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def read(self, tokens: Sequence[str]) -> int:
        """How many tokens were cached, never the last one; then caches all of them."""
        hashes = _block_hashes(tokens)
        hits = next((at for at, block in enumerate(hashes) if block not in self._blocks), len(hashes))
        for block in reversed(hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._blocks_max:
            self._blocks.popitem(last=False)
        return min(hits * BLOCK_TOKENS, len(tokens) - 1)


def _block_hashes(tokens: Sequence[str]) -> list[bytes]:
    state = hashlib.blake2b(digest_size=BLOCK_HASH_BYTES)
    hashes = []
    for first in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        state.update("\0".join((*tokens[first : first + BLOCK_TOKENS], "")).encode())
        hashes.append(state.copy().digest())
    return hashes


class ModelLoader:
    """Loads the model at start, or on first use if the engine is cold."""

    def __init__(self, clock: Clock, settings: EngineSettings) -> None:
        self._clock = clock
        self._load_s = settings.load_s
        self._cold = settings.cold
        self._ready_at: float | None = None if settings.cold else clock.now_s() + settings.load_s

    @property
    def state(self) -> str:
        if self._ready_at is None:
            return "unloaded"
        return "loaded" if self._clock.now_s() >= self._ready_at else "loading"

    def check(self) -> None:
        """Refuse requests while loading at start. A cold engine accepts them, and they wait in `use`."""
        if not self._cold and self.state == "loading":
            raise ModelStillLoading("Loading model")

    async def use(self) -> None:
        """Wait for a cold model; the first caller starts the load for all."""
        if self._ready_at is None:
            self._ready_at = self._clock.now_s() + self._load_s
        if self.state == "loading":
            await sleep_until(self._clock, self._ready_at)


class TokenPacer:
    """Token `i` is due at `start + i / tps`: an absolute schedule, so that late wake-ups do not add up."""

    def __init__(self, clock: Clock, *, tps: float) -> None:
        self._clock = clock
        self._tps = tps
        self._start_s = clock.now_s()
        self._woke_s = self._start_s - STEP_S_MIN

    async def next_due(self, n_done: int) -> int:
        """Wait until the token after `n_done` is due; returns how many are due by then, always more than `n_done`."""
        if self._tps <= 0:
            await asyncio.sleep(0)
            return n_done + UNPACED_STEPS
        due_s = self._start_s + n_done / self._tps
        await sleep_until(self._clock, max(due_s, self._woke_s + STEP_S_MIN))
        self._woke_s = self._clock.now_s()
        return max(n_done + 1, int((self._woke_s - self._start_s) * self._tps) + 1)
