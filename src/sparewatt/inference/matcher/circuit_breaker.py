"""Whether a node may have jobs of one model: a circuit breaker with half-open trials.

Closed: any number of jobs. A failure opens it for two seconds, each further one in a row for twice as long. When that
time is over it is half-open: one job at a time is a trial, and its outcome closes the breaker or opens it again. The
matcher uses a node whose breaker lets nothing through only if no other node is left: where all nodes fail, none is shut
out. How many first jobs wait for a node that was never timed is bounded elsewhere (`newcomers`). Pure.
"""

from __future__ import annotations

import enum
import math

OPEN_FIRST_S, OPEN_S_MAX = 2.0, 60.0
"""How long a failure opens it; each further one in a row doubles that."""
FAILURES_IN_ROW_MAX = 16
TRIALS_MAX = 1
"""Jobs that may wait for a first token at once at a node that has failed."""
LENIENCIES_MAX = 2
"""Contradicted refusals in a row that count as a difference between servers, not as a failure."""


class BreakerState(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Of one model on one node."""

    __slots__ = ("_leniencies", "failures_in_row", "open_until_s", "trials")

    def __init__(self) -> None:
        self.failures_in_row = 0
        self.open_until_s = 0.0
        self.trials = 0
        """Jobs that wait for a first token and began as trials."""
        self._leniencies = 0

    def state(self, now_s: float) -> BreakerState:
        if not self.failures_in_row:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_s < self.open_until_s else BreakerState.HALF_OPEN

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to remember of it."""
        return not (self.failures_in_row or self.trials or self._leniencies)

    @property
    def shut_until_s(self) -> float:
        """Until when jobs should go elsewhere; infinite while as many trials run as may."""
        return math.inf if self.failures_in_row and self.trials >= TRIALS_MAX else self.open_until_s

    def begin_job(self) -> bool:
        """Whether the job is a trial: `end_trial` must follow once it has its first token or is over."""
        is_trial = self.failures_in_row > 0
        self.trials += is_trial
        return is_trial

    def end_trial(self) -> None:
        self.trials = max(0, self.trials - 1)

    def note_answer(self) -> None:
        """A job was answered whole."""
        self.failures_in_row = self._leniencies = 0
        self.open_until_s = 0.0

    def note_failure(self, now_s: float) -> None:
        """While it is open nothing more is learned: jobs that ran side by side fail together."""
        if self.state(now_s) is BreakerState.OPEN:
            return
        self.open_until_s = now_s + min(OPEN_S_MAX, OPEN_FIRST_S * 2**self.failures_in_row)
        self.failures_in_row = min(FAILURES_IN_ROW_MAX, self.failures_in_row + 1)

    def note_difference(self) -> bool:
        """It refused what another node did, for want of a feature. Whether that still is no failure."""
        self._leniencies = min(FAILURES_IN_ROW_MAX, self._leniencies + 1)
        return self._leniencies <= LENIENCIES_MAX

    def note_reconnected(self) -> None:
        """After a single failure, as of a lost link, a new link is worth a trial at once; more are not washed off."""
        if self.failures_in_row <= 1:
            self.open_until_s = 0.0
