"""Processes under measurement: pinned to a core, with real-time priority, and their processor time and memory.

They start at ordinary priority, since a start may take seconds and others use the machine too; only a measurement runs
at real-time priority.
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
    """These processes and all their descendants."""
    return [pid for root in roots for pid in (root, *(pid for pid, _ in descendants_of(root)))]


def has_ended(pid: int) -> bool:
    state = _read_proc(f"{pid}/stat").rpartition(")")[2].split()
    return not state or state[0] in "ZX"


# priority


def can_be_realtime() -> bool:
    argv = ["chrt", "-f", str(REALTIME_PRIORITY), "true"]
    with contextlib.suppress(OSError):
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0
    return False


@contextmanager
def realtime(roots: Sequence[int], *, behind: Sequence[int] = ()) -> Iterator[None]:
    """Real-time priority (SCHED_FIFO) for all threads of these processes.

    `behind` gets a lower one, still before other programs: requests wait for it, but it must not delay `roots`.
    """
    _schedule(tree(behind), os.SCHED_FIFO, REALTIME_PRIORITY - 1)
    _schedule(tree(roots), os.SCHED_FIFO, REALTIME_PRIORITY)
    try:
        yield
    finally:
        _schedule(tree([*behind, *roots]), os.SCHED_OTHER, 0)  # including processes that were started meanwhile


def _schedule(pids: Iterable[int], policy: int, priority: int) -> None:
    for pid in pids:
        for thread in _threads_of(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setscheduler(thread, policy, os.sched_param(priority))


# processor time and memory


Spent = dict[int, int]
"""Nanoseconds on a processor, user and system together, by thread."""


def spent(roots: Iterable[int]) -> Spent:
    """By these processes and their descendants. From schedstat, because the clock ticks of `stat` are too coarse for a
    light load. The time of threads that ended is lost."""
    found: Spent = {}
    for pid in tree(roots):
        for thread in _threads_of(pid):
            fields = _read_proc(f"{pid}/task/{thread}/schedstat").split()
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
    """Proportional set size: shared memory is divided among its users."""
    return sum(map(_process_pss_bytes, tree(roots)))


def _process_pss_bytes(pid: int) -> int:
    for line in _read_proc(f"{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read_proc(what: str) -> str:
    """A file of /proc; empty if the process has ended."""
    try:
        return (Path("/proc") / what).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def settle(groups: Sequence[Sequence[int]]) -> bool:
    """Wait until every group is idle, so that late work of one target does not disturb the next."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < deadline_s:
        before = [spent(group) for group in groups]
        time.sleep(SETTLE_WINDOW_S)
        if all(cpu_s(was, spent(group)) < SETTLED_CPU_S for was, group in zip(before, groups, strict=True)):
            return True
    return False
