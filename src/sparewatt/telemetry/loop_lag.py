"""How late the event loop runs its timers: the time that a request waits before anybody looks at it."""

from __future__ import annotations

from sparewatt.core.clock import Clock
from sparewatt.telemetry.metrics.histogram import LAG_S, Histogram

EVERY_S = 0.25


class LoopLag:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram(LAG_S)

    def watch(self) -> None:
        """From now on, as long as the event loop runs: four timers a second, and how late each is."""
        due_s = self._clock.now_s() + EVERY_S

        def ring() -> None:
            self.histogram.observe(max(0.0, self._clock.now_s() - due_s))
            self.watch()

        self._clock.call_later(EVERY_S, ring)
