"""What a key may spend per day, week or month, and what it has. In memory, loaded from the books when first asked."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal, assert_never

from sparewatt.core.clock import Clock
from sparewatt.core.errors import KeyBudgetExceeded
from sparewatt.core.ids import KeyId
from sparewatt.core.money import Nano, format_usd
from sparewatt.store.books import Books

Period = Literal["day", "week", "month"]
RELOAD_S = 5.0
"""Other gateways spend from the same budget: how old our knowledge of that may be."""


@dataclass(frozen=True, slots=True)
class KeyBudget:
    nano: Nano
    period: Period


@dataclass(slots=True)
class Spending:
    since_unix_s: float
    posted: Nano
    loaded_at_s: float
    unposted: int = 0
    """Settled here since it was loaded: may be counted twice for a moment, never too little."""


def period_start(period: Period, unix_s: float) -> float:
    """Midnight UTC of today, of Monday, or of the first."""
    day = dt.datetime.fromtimestamp(unix_s, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            return day.timestamp()
        case "week":
            return (day - dt.timedelta(days=day.weekday())).timestamp()
        case "month":
            return day.replace(day=1).timestamp()
        case _:
            assert_never(period)


class Budgets:
    def __init__(self, books: Books, *, clock: Clock) -> None:
        self._books = books
        self._clock = clock
        self._spending: dict[KeyId, Spending] = {}

    async def check(self, key: KeyId, budget: KeyBudget | None) -> None:
        """Raises KeyBudgetExceeded. A key without a budget costs nothing to check."""
        if budget is None:
            return
        spending = await self._current(key, budget)
        spent = spending.posted + spending.unposted
        if spent >= budget.nano:
            raise KeyBudgetExceeded(
                f"This key has spent ${format_usd(spent)} of its ${format_usd(budget.nano)} per {budget.period}. "
                "Raise it with 'sparewatt keys limit', or wait for the next one."
            )

    def note(self, key: KeyId, nano: int) -> None:
        spending = self._spending.get(key)
        if spending is not None:
            spending.unposted += nano

    async def _current(self, key: KeyId, budget: KeyBudget) -> Spending:
        since = period_start(budget.period, self._clock.unix_s())
        now_s = self._clock.now_s()
        known = self._spending.get(key)
        if known is None or known.since_unix_s != since or now_s - known.loaded_at_s > RELOAD_S:
            known = Spending(since, await self._books.spent_by_key(key, since_unix_s=since), now_s)
            self._spending[key] = known
        return known
