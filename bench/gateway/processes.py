"""Processes under measurement: pinned to a core, ahead of everything else while they are measured, and added up.

They start at ordinary priority, since a start may take seconds and other people use the machine too. Real-time priority
is for the seconds of a measurement only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.realtime import REALTIME_PRIORITY

from tests.processes import descendants_of, end_process, start_process

SETTLE_WINDOW_S = 0.2
SETTLED_CPU_S = 0.03
SETTLE_S_MAX = 20.0
STOP_S = 20.0


@contextmanager
def running(
    argv: Sequence[str], *, cores: str, output: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    pinned = ["taskset", "-c", cores, *argv]
    process = start_process(pinned, output=output, env=env)
    try:
        yield process
    finally:
        end_process(process, signal.SIGTERM, ceiling_s=STOP_S)


def tree(roots: Iterable[int]) -> list[int]:
    """These processes and all below them."""
    return [pid for root in roots for pid in (root, *(pid for pid, _ in descendants_of(root)))]


def has_ended(pid: int) -> bool:
    state = _told_of(f"{pid}/stat").rpartition(")")[2].split()
    return not state or state[0] in "ZX"


# priority


def may_be_realtime() -> bool:
    asked = ["chrt", "-f", str(REALTIME_PRIORITY), "true"]
    with contextlib.suppress(OSError):
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0
    return False


@contextmanager
def realtime(roots: Sequence[int], *, behind: Sequence[int] = ()) -> Iterator[None]:
    """All threads of these processes first in, first out, before whatever else the machine does.

    Those `behind` come after them, and still before all else: what a request waits for, and may not hold up others.
    """
    _schedule(tree(behind), os.SCHED_FIFO, REALTIME_PRIORITY - 1)
    _schedule(tree(roots), os.SCHED_FIFO, REALTIME_PRIORITY)
    try:
        yield
    finally:
        _schedule(tree([*behind, *roots]), os.SCHED_OTHER, 0)  # also those that were started meanwhile


def _schedule(pids: Iterable[int], policy: int, priority: int) -> None:
    for pid in pids:
        for thread in _threads_of(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setscheduler(thread, policy, os.sched_param(priority))


# adding up


Spent = dict[int, int]
"""Nanoseconds on a processor, user and system together, by thread."""


def spent(roots: Iterable[int]) -> Spent:
    """By these processes and all below them, so far. Finer than the ticks of `stat`, which are too coarse for a light
    load; what a thread did that ended in between is lost, and nothing else."""
    found: Spent = {}
    for pid in tree(roots):
        for thread in _threads_of(pid):
            fields = _told_of(f"{pid}/task/{thread}/schedstat").split()
            if fields:
                found[thread] = int(fields[0])
    return found


def cpu_s(before: Spent, after: Spent) -> float:
    return sum(now - before.get(thread, 0) for thread, now in after.items()) / 1e9


def _threads_of(pid: int) -> list[int]:
    try:
        return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def pss_bytes(roots: Iterable[int]) -> int:
    """Memory, with what is shared counted in part."""
    return sum(map(_process_pss_bytes, tree(roots)))


def _process_pss_bytes(pid: int) -> int:
    for line in _told_of(f"{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _told_of(what: str) -> str:
    """Nothing of a process that is gone."""
    try:
        return (Path("/proc") / what).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def settle(groups: Sequence[Sequence[int]]) -> bool:
    """Wait until each does next to nothing: what one target still has to do must not weigh on the next."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < deadline_s:
        before = [spent(group) for group in groups]
        time.sleep(SETTLE_WINDOW_S)
        if all(cpu_s(was, spent(group)) < SETTLED_CPU_S for was, group in zip(before, groups, strict=True)):
            return True
    return False
