"""Who runs on which core, and who gives way: the gateway shares its core with nobody, and an attacker waits for whoever
else wants the other. Everything is on one machine here; elsewhere each has its own.

On a machine with one core all share it, and a report says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

ALL = frozenset(os.sched_getaffinity(0))
MEASURED = frozenset(sorted(ALL)[:1])
"""The gateway."""

OTHERS = ALL - MEASURED or ALL
"""The honest client and its node; attackers, and the nodes that they keep busy, when those leave it time."""

REALTIME = int(os.environ.get("HOSTILE_REALTIME", "1" if os.geteuid() == 0 else "0"))
"""The priority of the honest client and its node on the core that they share with attackers; root's to give. 0: none.

Else what is measured is how long Linux lets them wait for the attackers' own work, which elsewhere has its own machine.
"""

LEAST = -15 if REALTIME else 19
"""How nice attackers are: least of all, or next after who is measured."""

_T = TypeVar("_T")


def told() -> str:
    return "has a core of its own" if OTHERS != ALL else "shares the one core with all"


def ahead() -> str:
    return ", while client and its node are ahead of all" if REALTIME else ""


def give_way(pids: Iterable[int]) -> None:
    """Whoever these are, and all their threads, run when nobody else wants to."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), LEAST)


def go_first(pids: Iterable[int]) -> None:
    """Whoever these are runs whenever it wants to, if that was asked for."""
    for pid in pids if REALTIME else ():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(REALTIME))


def giving_way(work: Callable[[], _T]) -> _T:
    """Done on a thread of its own, since what has given way once may not go back."""

    def done() -> _T:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST)
        with running_on(OTHERS):
            return work()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(done).result()


@contextmanager
def running_on(cores: frozenset[int]) -> Iterator[None]:
    """This thread, and what it starts meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
