"""A child process dies with its parent, even when the parent gets `kill -9`.

On Linux the kernel does this (PR_SET_PDEATHSIG). On other systems our own children poll their parent's pid; a foreign
binary cannot be tied there. The kernel watches the *thread* that forked, so children must be started from a thread that
lives as long as the process: the main thread's event loop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PARENT_PID_ENV = "SPAREWATT_PARENT_PID"
"""The pid of the process that started this one; absent when it was started by hand."""

EXIT_ORPHANED = 75
"""Exit status of a child that started after its parent had died (EX_TEMPFAIL)."""

KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that cannot be ignored. On Windows any signal ends a process at once."""

_PR_SET_PDEATHSIG = 1
_WATCH_INTERVAL_S = 0.2


def die_with_parent(sig: signal.Signals = KILL) -> None:
    """Tie this process to the parent that PARENT_PID_ENV names; does nothing when it was started by hand.

    Removes the variable from the environment, since it would be wrong for this process's own children.
    """
    parent_pid = os.environ.pop(PARENT_PID_ENV, None)
    if parent_pid is None:
        return
    if sys.platform == "linux":
        _load_prctl()(_PR_SET_PDEATHSIG, sig)
    else:
        _watch_parent(os.getppid(), sig)
    if str(os.getppid()) != parent_pid:
        os._exit(EXIT_ORPHANED)


def death_signal_preexec(sig: signal.Signals) -> Callable[[], None] | None:
    """A `preexec_fn` that ties any binary to this process; None where the system has no death signal.

    All lookups happen here, before the fork: between fork and exec only two system calls are made.
    """
    if sys.platform != "linux":
        return None
    prctl, getppid, parent_pid = _load_prctl(), os.getppid, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, sig)
        if getppid() != parent_pid:  # the parent died before prctl: no signal will come
            os._exit(EXIT_ORPHANED)

    return tie


def _load_prctl() -> Callable[[int, int], int]:
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong)
    prctl.restype = ctypes.c_int

    def call(option: int, argument: int) -> int:
        return int(prctl(option, argument))

    return call


def _watch_parent(parent_pid: int, sig: signal.Signals) -> None:
    def watch() -> None:
        while os.getppid() == parent_pid:
            time.sleep(_WATCH_INTERVAL_S)
        os.kill(os.getpid(), sig)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
