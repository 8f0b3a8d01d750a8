"""The interface between a request and whatever paces its tokens, and the simple way: each stream at its own rate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.sim.servers.facts import ServerLoad, ServerTotals
from sparewatt.testing.engine.resources import EngineSlots, ModelLoader, TokenPacer
from sparewatt.testing.engine.settings import EngineSettings, EngineStats


class TokenSource(Protocol):
    async def next_due(self, n_done: int) -> int:
        """Wait for the token after `n_done`; returns how many are due by then, always more than `n_done`."""
        ...


class TokenGenerator(Protocol):
    def generate(
        self, *, prompt_tokens: int, cached_tokens: int = 0, new_tokens: int
    ) -> AbstractAsyncContextManager[TokenSource]:
        """Yields when the first token is due. Leaving by an exception or a cancellation frees its place at once."""
        ...

    def busy_slots(self) -> list[bool]: ...

    def load(self) -> ServerLoad: ...


class PacedGenerator:
    """A slot for each stream, and fixed rates that do not depend on the others."""

    def __init__(self, clock: Clock, *, settings: EngineSettings, stats: EngineStats, loader: ModelLoader) -> None:
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._loader = loader
        self._slots = EngineSlots(settings.slots, stats)

    @asynccontextmanager
    async def generate(
        self,
        *,
        prompt_tokens: int,
        cached_tokens: int = 0,
        new_tokens: int,  # noqa: ARG002 (the others need to know it)
    ) -> AsyncIterator[TokenSource]:
        async with self._slots.occupy():
            await self._loader.use()
            if self._settings.prefill_tps > 0:
                read_s = (prompt_tokens - cached_tokens) / self._settings.prefill_tps
                await sleep_until(self._clock, self._clock.now_s() + read_s)
            yield TokenPacer(self._clock, tps=self._settings.decode_tps)

    def busy_slots(self) -> list[bool]:
        return self._slots.busy()

    def load(self) -> ServerLoad:
        stats = self._stats
        return ServerLoad(
            running=stats.running,
            waiting=stats.queued,
            totals=ServerTotals(generation_tokens=stats.tokens, requests=stats.finished),
        )
