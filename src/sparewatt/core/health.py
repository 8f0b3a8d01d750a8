"""Why this process is not ready: a small state machine with hysteresis over the causes that its probes report.

A cause is one thing that is wrong: a full disk, a database that is away. It counts once it was reported for long enough
(`raise_after_s`), and no longer once it was not reported for CLEAR_AFTER_S, so that neither a single lost packet nor a
disk at its limit makes readiness flap. Every change is passed on once. Time comes in by argument; nothing is read here.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

CLEAR_AFTER_S = 1.0


class HealthCode(enum.Enum):
    """What can be wrong, in the order in which it is shown: what explains the others comes first."""

    DISK_FULL = "disk_full"
    JOURNAL_UNWRITABLE = "journal_unwritable"
    DATABASE_UNAVAILABLE = "database_unavailable"
    PROCESS_HUNG = "process_hung"


_RAISE_AFTER_S = {HealthCode.DATABASE_UNAVAILABLE: 1.5}
"""A database that restarts is back sooner. The others are certain when they are reported."""


@dataclass(frozen=True, slots=True)
class HealthCause:
    code: HealthCode
    message: str
    """For anybody: what happened, and what still works."""
    where: str = ""
    """For the operator: a path, or the number of a process. Never shown on a public port."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    cause: HealthCause
    is_raised: bool
    lasted_s: float = 0.0
    """Of a cause that was cleared."""


@dataclass(slots=True)
class _CauseState:
    cause: HealthCause
    since_s: float
    seen_s: float
    is_raised: bool = False


class HealthState:
    """One per process. Ready means that there is no cause."""

    def __init__(self, *, on_change: Callable[[HealthChange], None]) -> None:
        self._on_change = on_change
        self._states: dict[HealthCode, _CauseState] = {}

    @property
    def causes(self) -> tuple[HealthCause, ...]:
        """What is wrong now."""
        raised = {code: state.cause for code, state in self._states.items() if state.is_raised}
        return tuple(raised[code] for code in HealthCode if code in raised)

    @property
    def is_ready(self) -> bool:
        return not any(state.is_raised for state in self._states.values())

    def update(self, found: Iterable[HealthCause], *, now_s: float) -> None:
        """Take the result of one round of all probes: at most one cause of each code."""
        for cause in found:
            self._see(cause, now_s=now_s)
        for code, state in list(self._states.items()):
            if now_s - state.seen_s >= CLEAR_AFTER_S or (state.seen_s < now_s and not state.is_raised):
                self._clear(code, state, now_s=now_s)

    def _see(self, cause: HealthCause, *, now_s: float) -> None:
        state = self._states.setdefault(cause.code, _CauseState(cause, now_s, now_s))
        state.cause, state.seen_s = cause, now_s
        if not state.is_raised and now_s - state.since_s >= _RAISE_AFTER_S.get(cause.code, 0.0):
            state.is_raised = True
            self._on_change(HealthChange(cause, is_raised=True))

    def _clear(self, code: HealthCode, state: _CauseState, *, now_s: float) -> None:
        del self._states[code]
        if state.is_raised:
            self._on_change(HealthChange(state.cause, is_raised=False, lasted_s=now_s - state.since_s))
