"""All that a gateway counts for its operator while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparewatt.core.clock import Clock
from sparewatt.gateway.metrics.histogram import LAG_S, TIMES_S, Histogram
from sparewatt.gateway.metrics.job_meter import JobMeter
from sparewatt.inference.dispatch.model import MatchRecord

LAG_EVERY_S = 0.25


class Meters:
    def __init__(
        self, is_served: Callable[[str], bool], *, clock: Clock, settle: Callable[[], None] = lambda: None
    ) -> None:
        """`settle`: has `count` called for jobs that are over and were not told of yet."""
        self._clock = clock
        self._settle = settle
        self._jobs = JobMeter(is_served)
        self.queue_wait = Histogram(TIMES_S)
        self.loop_lag = Histogram(LAG_S)

    def count(self, records: Iterable[MatchRecord]) -> None:
        """These jobs are over."""
        note = self._jobs.note
        for record in records:
            note(record)

    @property
    def jobs(self) -> JobMeter:
        """With all that is over by now."""
        self._settle()
        return self._jobs

    def watch_loop(self) -> None:
        """From now on, as long as the event loop runs: four timers a second, and how late each is."""
        due_s = self._clock.now_s() + LAG_EVERY_S

        def ring() -> None:
            self.loop_lag.observe(max(0.0, self._clock.now_s() - due_s))
            self.watch_loop()

        self._clock.call_later(LAG_EVERY_S, ring)
