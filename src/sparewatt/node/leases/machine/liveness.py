"""Whether the process that wrote a record still runs."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

LAPSE_S = 60.0
"""So long after its last sign the bids of an agent that is gone still count: one that is restarted keeps them."""
START_SLACK_S = 1.0
"""Between two readings of when a process began."""


def pid_space() -> int:
    """A number for the namespace of pids that this process is in; 0 if the system does not tell."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino & 0xFFFF_FFFF
    except OSError:
        return 0


def own_start() -> float:
    return float(psutil.Process(os.getpid()).create_time())


def process_lives(pid: int, started: float) -> bool:
    try:
        return abs(float(psutil.Process(pid).create_time()) - started) <= START_SLACK_S
    except (psutil.Error, ValueError):
        return False
