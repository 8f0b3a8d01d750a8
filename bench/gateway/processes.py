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

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
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
    state = _told_of(pid, "stat").rpartition(")")[2].split()
    return not state or state[0] in "ZX"


# priority


def may_be_realtime() -> bool:
    asked = ["chrt", "-f", str(REALTIME_PRIORITY), "true"]
    with contextlib.suppress(OSError):
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0
    return False


@contextmanager
def realtime(roots: Sequence[int]) -> Iterator[None]:
    """All threads of these processes first in, first out, before whatever else the machine does."""
    pids = tree(roots)
    _schedule(pids, os.SCHED_FIFO, REALTIME_PRIORITY)
    try:
        yield
    finally:
        _schedule(pids, os.SCHED_OTHER, 0)


def _schedule(pids: Iterable[int], policy: int, priority: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


# adding up


def cpu_s(roots: Iterable[int]) -> float:
    """User and system time of these processes and all below them, so far."""
    return sum(map(_process_cpu_s, tree(roots)))


def _process_cpu_s(pid: int) -> float:
    fields = _told_of(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0


def pss_bytes(roots: Iterable[int]) -> int:
    """Memory, with what is shared counted in part."""
    return sum(map(_process_pss_bytes, tree(roots)))


def _process_pss_bytes(pid: int) -> int:
    for line in _told_of(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _told_of(pid: int, what: str) -> str:
    """Nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def settle(roots: Sequence[int]) -> bool:
    """Wait until these do next to nothing: what one target still has to do must not weigh on the next."""
    deadline_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < deadline_s:
        before_s = cpu_s(roots)
        time.sleep(SETTLE_WINDOW_S)
        if cpu_s(roots) - before_s < SETTLED_CPU_S:
            return True
    return False
