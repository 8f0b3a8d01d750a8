"""A key's budget: how much it may spend in a day, a week or a month. Pure; what was spent comes in by argument.

Periods begin at midnight UTC, weeks on Monday, so that everybody's statement has the same lines.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import assert_never

from sparewatt.store.database import Period


@dataclass(frozen=True, slots=True)
class BudgetState:
    budget_nano: int
    spent_nano: int
    period: Period
    resets_at: dt.datetime

    @property
    def left_nano(self) -> int:
        """Never below zero: a job that was let in may end a little above what was guessed."""
        return max(0, self.budget_nano - self.spent_nano)

    @property
    def is_nearly_used(self) -> bool:
        """Time for a word of warning: four fifths are gone."""
        return self.spent_nano * 5 >= self.budget_nano * 4


def period_start(period: Period, now: dt.datetime) -> dt.datetime:
    """When the current period began, in UTC."""
    midnight = now.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return midnight
        case "week":
            return midnight - dt.timedelta(days=midnight.weekday())
        case "month":
            return midnight.replace(day=1)
        case _:
            assert_never(period)


def period_end(period: Period, now: dt.datetime) -> dt.datetime:
    """When the next period begins, in UTC."""
    longest = {"day": 1, "week": 7, "month": 31}[period]
    return period_start(period, period_start(period, now) + dt.timedelta(days=longest))


def budget_state(*, budget_nano: int, period: Period, spent_nano: int, now: dt.datetime) -> BudgetState:
    """`spent_nano` is what the key spent since `period_start`."""
    return BudgetState(budget_nano, spent_nano, period, resets_at=period_end(period, now))
