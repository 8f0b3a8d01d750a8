"""Metric families about this process, by the names that every Prometheus dashboard knows; and the event loop's lag."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import psutil

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.prometheus import Family, Histogram, Sample, one

LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
LAG_PROBE_S = 0.25


class LoopLag:
    """How late the event loop runs its timers: a request waits as long before it is read."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self.histogram = Histogram(LAG_S)

    def watch(self) -> None:
        """From now on, set four timers a second and observe how late each is."""
        due_s = self._clock.now_s() + LAG_PROBE_S

        def ring() -> None:
            self.histogram.observe(max(0.0, self._clock.now_s() - due_s))
            self.watch()

        self._clock.call_later(LAG_PROBE_S, ring)


def collect_process(loop_lag: LoopLag, *, is_ready: bool, links: int) -> list[Family]:
    return [
        Family(names.BUILD, [Sample(1, (("version", __version__),))]),
        one(names.READY, float(is_ready)),
        one(names.LINKS, links),
        one(names.TASKS, len(asyncio.all_tasks())),
        Family(names.LOOP_LAG, loop_lag.histogram.samples()),
        *_usage(psutil.Process()),
        *_collections(),
    ]


def _usage(process: psutil.Process) -> list[Family]:
    with process.oneshot():
        cpu = process.cpu_times()
        families = [
            one(names.CPU, cpu.user + cpu.system),
            one(names.RESIDENT, process.memory_info().rss),
            one(names.STARTED, process.create_time()),
        ]
    with contextlib.suppress(AttributeError):  # Windows counts handles, which are something else
        families.append(one(names.FDS, process.num_fds()))
        families.append(one(names.FDS_MAX, process.rlimit(psutil.RLIMIT_NOFILE)[0]))
    return families


def _collections() -> list[Family]:
    generations = list(enumerate(gc.get_stats()))
    return [
        Family(metric, [Sample(stats[what], (("generation", str(at)),)) for at, stats in generations])
        for metric, what in ((names.COLLECTIONS, "collections"), (names.COLLECTED, "collected"))
    ]
