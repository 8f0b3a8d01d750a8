"""Real-time priority, for measurements on a machine that others use as well."""

from __future__ import annotations

import os

REALTIME_PRIORITY = 5


def prefer_realtime() -> bool:
    """Schedule this process before all others if that is allowed. Child processes inherit it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REALTIME_PRIORITY))
    except (OSError, AttributeError):
        return False
    return True
