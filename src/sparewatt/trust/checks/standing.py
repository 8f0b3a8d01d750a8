"""What verdicts mean for a node: a state machine. Pure.

The first failed check stops paid traffic: only checks go to the node until the next verdict. If that is a pass, all is
as before. Two failed checks in a row on prompts of the network's own bar the node, and forfeit what it earned since
its last passed check. A failed re-run of a customer's request can make a node suspect and nothing more: its text is not
kept, so nobody could replay the verdict.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from sparewatt.trust.checks.comparison import Comparison
from sparewatt.trust.checks.model import CheckKind, CheckResult
from sparewatt.trust.checks.tolerance import NO_PAIRS, HonestPairs, drifts

FAILED_PROBES_MAX = 2
TRUSTED_PASSES = 20
"""Checks passed without a failure between them, after which a node's word counts as that of one that is known."""
WINDOW_PIECES = 4_096
"""Comparisons that count for drift: older ones fade once there are so many pieces."""
BARRED_S = 7 * 86_400.0
"""After that it may begin anew, as a newcomer: a new identity could do so at once."""


class CheckState(enum.StrEnum):
    UNCHECKED = "unchecked"
    """No verdict yet."""
    PASSING = "passing"
    SUSPECT = "suspect"
    """Its last check failed: it gets checks alone."""
    BARRED = "barred"


class Consequence(enum.StrEnum):
    """What a verdict does to the node's money."""

    NONE = "none"
    RELEASE = "release"
    """What it earned until now becomes payable."""
    FORFEIT = "forfeit"
    """What it earned since its last passed check is lost."""


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """A node's record as far as checks go."""

    state: CheckState = CheckState.UNCHECKED
    passed: int = 0
    """Since the last failure."""
    failed_probes: int = 0
    """In a row."""
    past: HonestPairs = NO_PAIRS
    """How its answers compared lately."""
    barred_until_unix_s: float | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether it gets no paid traffic."""
        return self.state is CheckState.SUSPECT or self.state is CheckState.BARRED

    @property
    def is_trusted(self) -> bool:
        return self.state is CheckState.PASSING and self.passed >= TRUSTED_PASSES


def settled_result(
    record: CheckRecord, result: CheckResult, comparison: Comparison | None, *, hazard: float
) -> CheckResult:
    """A check that was passed as such fails if the node's latest answers together differ too often."""
    is_drift = result is CheckResult.PASSED and drifts(_with(record.past, comparison), hazard=hazard)
    return CheckResult.FAILED if is_drift else result


def next_record(
    record: CheckRecord, kind: CheckKind, result: CheckResult, comparison: Comparison | None, *, unix_s: float
) -> tuple[CheckRecord, Consequence]:
    """The record after one more verdict."""
    if kind == "schema" or result is CheckResult.UNDECIDED or record.state is CheckState.BARRED:
        return record, Consequence.NONE
    if result is CheckResult.PASSED:
        past, passed = _with(record.past, comparison), record.passed + 1
        passing = replace(record, state=CheckState.PASSING, passed=passed, failed_probes=0, past=past)
        return passing, Consequence.RELEASE
    failed_probes = record.failed_probes + (kind == "probe")
    # The next verdict stands on evidence of its own.
    failed = CheckRecord(CheckState.SUSPECT, failed_probes=failed_probes)
    if failed_probes < FAILED_PROBES_MAX:
        return failed, Consequence.NONE
    until = unix_s + BARRED_S
    return replace(failed, state=CheckState.BARRED, barred_until_unix_s=until), Consequence.FORFEIT


def after_term(record: CheckRecord, *, unix_s: float) -> CheckRecord:
    """A node whose time is up begins anew."""
    until = record.barred_until_unix_s
    return CheckRecord() if until is not None and unix_s >= until else record


def overturned(record: CheckRecord) -> CheckRecord:
    """A re-trial found for the node: as if the verdict had been a pass."""
    return replace(record, state=CheckState.PASSING, failed_probes=0, barred_until_unix_s=None)


def _with(past: HonestPairs, comparison: Comparison | None) -> HonestPairs:
    if comparison is None:
        return past
    added = past.plus(comparison)
    if added.pieces <= WINDOW_PIECES:
        return added
    return HonestPairs(added.pieces // 2, added.differences // 2)
