"""Metric families about this process, by the names that every Prometheus dashboard knows."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import psutil

from sparewatt import __version__
from sparewatt.telemetry.loop_lag import LoopLag
from sparewatt.telemetry.metrics import names
from sparewatt.telemetry.metrics.model import Sample, Samples, family, one


def collect_process(loop_lag: LoopLag, *, is_ready: bool, links: int) -> Samples:
    return [
        family(names.BUILD, Sample(1, (("version", __version__),))),
        one(names.READY, float(is_ready)),
        one(names.LINKS, links),
        one(names.TASKS, len(asyncio.all_tasks())),
        family(names.LOOP_LAG, *loop_lag.histogram.samples()),
        *_usage(psutil.Process()),
        *_collections(),
    ]


def _usage(process: psutil.Process) -> Samples:
    with process.oneshot():
        spent = process.cpu_times()
        found = [
            one(names.CPU, spent.user + spent.system),
            one(names.RESIDENT, process.memory_info().rss),
            one(names.STARTED, process.create_time()),
        ]
    with contextlib.suppress(AttributeError):  # Windows counts handles, which are something else
        found.append(one(names.FDS, process.num_fds()))
        found.append(one(names.FDS_MAX, process.rlimit(psutil.RLIMIT_NOFILE)[0]))
    return found


def _collections() -> Samples:
    generations = list(enumerate(gc.get_stats()))
    return [
        family(metric, *(Sample(stats[what], (("generation", str(at)),)) for at, stats in generations))
        for metric, what in ((names.COLLECTIONS, "collections"), (names.COLLECTED, "collected"))
    ]
