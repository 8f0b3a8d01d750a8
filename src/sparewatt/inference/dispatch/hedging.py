"""Hedging: a second node is asked while the first is slow, and the first output wins.

`HedgeBudget` allows it for a fiftieth of all requests. `HedgedAttempt` is the second attempt until one of the two has
output or has failed; the job's run then adopts it or calls it off. Only an attempt before its first output is hedged,
so the one that is called off has delivered nothing, and is not paid.
"""

from __future__ import annotations

from typing import Protocol

from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.attempt import Attempt
from sparewatt.inference.dispatch.failure_reasons import ServerError
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, DeliveryCount, DirectPath, Outcome
from sparewatt.inference.matcher.model import Candidate
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.inference.text_units import CompletionUnits

HEDGES_PER_REQUEST = 0.02
HEDGES_SAVED_MAX = 5.0
"""Hedges that a quiet time saves up for a bad one."""


class HedgeBudget:
    """A token bucket that requests fill."""

    def __init__(self) -> None:
        self._saved = 0.0

    def note_request(self) -> None:
        self._saved = min(HEDGES_SAVED_MAX, self._saved + HEDGES_PER_REQUEST)

    def take(self) -> bool:
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


class HedgeOwner(Protocol):
    """Implemented by the job's run."""

    def adopt(self, hedge: HedgedAttempt) -> None:
        """The hedge has output: it becomes the job's attempt, and the other one is called off."""
        ...

    def on_hedge_failed(self, hedge: HedgedAttempt, outcome: Outcome, reason: str) -> None: ...

    def on_hedge_refused(self, hedge: HedgedAttempt, error: ServerError) -> None: ...

    def on_output(self, data: bytes) -> None: ...

    def on_done(self, data: bytes) -> None: ...

    def is_leased(self, node_id: NodeId, order_id: str) -> bool: ...

    def on_counted(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None: ...


class HedgedAttempt:
    """Implements AttemptListener for the second attempt, as long as it races the first."""

    __slots__ = ("_run", "attempt", "candidate", "record", "reservation")

    def __init__(self, run: HedgeOwner, candidate: Candidate, record: AttemptRecord, reservation: Reservation) -> None:
        self._run = run
        self.candidate = candidate
        self.record = record
        self.reservation = reservation
        self.attempt: Attempt | None = None
        """Set as soon as it is made: it needs its listener first."""

    def on_first_token(self) -> None:
        self._run.adopt(self)

    def on_output(self, data: bytes) -> None:
        self._run.adopt(self)
        self._run.on_output(data)

    def direct_path(self) -> DirectPath | None:
        return None

    def on_unread(self, n_bytes: int) -> None: ...

    def on_done(self, data: bytes) -> None:
        self._run.adopt(self)
        self._run.on_done(data)

    def on_cut(self) -> None: ...

    def on_bad_request(self, error: ServerError) -> None:
        self._run.on_hedge_refused(self, error)

    def on_server_error(self, error: ServerError) -> None:
        self._run.on_hedge_refused(self, error)

    def on_failed(self, outcome: Outcome, reason: str) -> None:
        self._run.on_hedge_failed(self, outcome, reason)

    def on_slow(self) -> None: ...

    def can_fail_over(self) -> bool:
        return False

    def can_try_elsewhere(self) -> bool:
        """The other attempt still runs."""
        return True

    def prompts_ahead_s(self) -> float:
        return 0.0

    def is_leased(self, node_id: NodeId, order_id: str) -> bool:
        return self._run.is_leased(node_id, order_id)

    def on_counted(self, delivered: DeliveryCount, units: CompletionUnits) -> BilledAnswer | None:
        self._run.adopt(self)
        return self._run.on_counted(delivered, units)
