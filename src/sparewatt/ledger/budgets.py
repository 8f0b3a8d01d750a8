"""What a key may spend per day, week or month, and what it has. In memory, loaded from the books when first asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from sparewatt.core.clock import Clock
from sparewatt.core.errors import KeyBudgetExceeded, StoreUnavailable
from sparewatt.core.ids import KeyId
from sparewatt.core.money import Nano, format_usd
from sparewatt.store.database import BudgetPeriod
from sparewatt.store.ledger import LedgerStore

RELOAD_S = 5.0
"""Other gateways spend from the same budget: how old our knowledge of that may be."""
POSTED_WITHIN_S = 2.0
"""What was settled longer ago is in the books."""


@dataclass(frozen=True, slots=True)
class KeyBudget:
    nano: Nano
    period: BudgetPeriod


@dataclass(slots=True)
class BudgetSpending:
    since_unix_s: float
    posted: Nano
    loaded_at_s: float
    unposted: list[tuple[float, int]] = field(default_factory=list)
    """Settled here, and when: what the books may not have yet. Counted twice for a moment rather than not at all."""

    @property
    def spent(self) -> int:
        return self.posted + sum(nano for _, nano in self.unposted)

    def record(self, nano: int, *, now_s: float) -> None:
        """One line a second is enough."""
        if self.unposted and now_s - self.unposted[-1][0] < 1:
            at_s, before = self.unposted.pop()
            self.unposted.append((at_s, before + nano))
        else:
            self.unposted.append((now_s, nano))


def period_start(period: BudgetPeriod, unix_s: float) -> float:
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


def budget_exceeded(budget: KeyBudget, left: int, needed: int) -> KeyBudgetExceeded:
    return KeyBudgetExceeded(
        f"This request may cost up to ${format_usd(needed)}, and ${format_usd(left)} is left of this key's "
        f"${format_usd(budget.nano)} per {budget.period}. Raise it with 'sparewatt keys limit', ask for less "
        f"(max_tokens, max_price), or wait for the next {budget.period}."
    )


class KeyBudgets:
    def __init__(
        self,
        books: LedgerStore,
        *,
        clock: Clock,
        pending_elsewhere: Callable[[KeyId], int] = lambda _: 0,
        reload_s: float = RELOAD_S,
    ) -> None:
        """`pending_elsewhere`: what the other processes of this gateway say is `pending` there."""
        self._pending_elsewhere = pending_elsewhere
        self._reload_s = reload_s
        self._books = books
        self._clock = clock
        self._spending: dict[KeyId, BudgetSpending] = {}
        self._held: dict[KeyId, int] = {}

    async def remaining(self, key: KeyId, budget: KeyBudget | None) -> Nano | None:
        """What a key may still spend in this period, running requests counted at what they hold. None: no budget."""
        if budget is None:
            return None
        spent = (await self._current_spending(key, budget)).spent + self._pending_elsewhere(key)
        return Nano(max(0, budget.nano - spent - self._held.get(key, 0)))

    def pending(self) -> dict[KeyId, int]:
        """Of keys with a budget: what they hold here, and what they spent that the books may not have yet."""
        noted = {key: sum(nano for _, nano in spending.unposted) for key, spending in self._spending.items()}
        found = {key: nano + self._held.get(key, 0) for key, nano in noted.items()}
        return {key: nano for key, nano in found.items() if nano}

    def hold(self, key: KeyId, nano: int) -> None:
        """A request may cost that much."""
        self._held[key] = self._held.get(key, 0) + nano

    def release(self, key: KeyId, held: int, *, spent: int) -> None:
        """It is over, and this is what it did cost."""
        still = self._held.get(key, 0) - held
        if still > 0:
            self._held[key] = still
        else:
            self._held.pop(key, None)
        spending = self._spending.get(key)
        if spending is not None and spent:
            spending.record(spent, now_s=self._clock.now_s())

    async def _current_spending(self, key: KeyId, budget: KeyBudget) -> BudgetSpending:
        since = period_start(budget.period, self._clock.unix_s())
        known = self._spending.get(key)
        if known is None or known.since_unix_s != since:
            return await self._load(key, since)
        if self._clock.now_s() - known.loaded_at_s > self._reload_s:
            try:
                return await self._load(key, since)
            except StoreUnavailable:  # answers go on without Postgres, and what is spent here is known
                return known
        return known

    async def _load(self, key: KeyId, since_unix_s: float) -> BudgetSpending:
        now_s = self._clock.now_s()
        posted = await self._books.spent_by_key(key, since_unix_s=since_unix_s)
        before = self._spending.get(key)
        young = [note for note in before.unposted if now_s - note[0] < POSTED_WITHIN_S] if before else []
        fresh = self._spending[key] = BudgetSpending(since_unix_s, posted, now_s, young)
        return fresh
