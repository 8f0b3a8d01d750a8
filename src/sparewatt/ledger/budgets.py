"""Spending limits of API keys per day, week or month. Spending is loaded from Postgres once, then counted in memory."""

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
"""How old the loaded figure may be, since other gateways spend from the same budget."""
POSTED_WITHIN_S = 2.0
"""What was settled longer ago is posted."""


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
    """When and how much was settled here and may not be posted yet. Better counted twice briefly than not at all."""

    @property
    def spent(self) -> int:
        return self.posted + sum(nano for _, nano in self.unposted)

    def record(self, nano: int, *, now_s: float) -> None:
        """In one entry per second, so that the list stays short."""
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


@dataclass(slots=True)
class KeyBudgets:
    books: LedgerStore
    clock: Clock
    pending_at_peers: Callable[[KeyId], int] = lambda _: 0
    """What is `pending` at the other processes of this gateway."""
    reload_s: float = RELOAD_S
    _spending: dict[KeyId, BudgetSpending] = field(default_factory=dict, init=False)
    _held: dict[KeyId, int] = field(default_factory=dict, init=False)

    async def remaining(self, key: KeyId, budget: KeyBudget | None) -> Nano | None:
        """What a key may still spend in this period, after the holds of running requests. None: no budget."""
        if budget is None:
            return None
        spent = (await self._current_spending(key, budget)).spent + self.pending_at_peers(key)
        return Nano(max(0, budget.nano - spent - self._held.get(key, 0)))

    def pending(self) -> dict[KeyId, int]:
        """Of keys with a budget: what they hold here, and what they spent that may not be posted yet."""
        unposted = {key: sum(nano for _, nano in spending.unposted) for key, spending in self._spending.items()}
        pending = {key: nano + self._held.get(key, 0) for key, nano in unposted.items()}
        return {key: nano for key, nano in pending.items() if nano}

    def hold(self, key: KeyId, nano: int) -> None:
        """A request that may cost so much begins."""
        self._held[key] = self._held.get(key, 0) + nano

    def release(self, key: KeyId, held: int, *, spent: int) -> None:
        """The request has ended."""
        still = self._held.get(key, 0) - held
        if still > 0:
            self._held[key] = still
        else:
            self._held.pop(key, None)
        spending = self._spending.get(key)
        if spending is not None and spent:
            spending.record(spent, now_s=self.clock.now_s())

    async def _current_spending(self, key: KeyId, budget: KeyBudget) -> BudgetSpending:
        since = period_start(budget.period, self.clock.unix_s())
        known = self._spending.get(key)
        if known is None or known.since_unix_s != since:
            return await self._load(key, since)
        if self.clock.now_s() - known.loaded_at_s > self.reload_s:
            try:
                return await self._load(key, since)
            except StoreUnavailable:  # inference continues without Postgres, on the figures known here
                return known
        return known

    async def _load(self, key: KeyId, since_unix_s: float) -> BudgetSpending:
        now_s = self.clock.now_s()
        posted = await self.books.spent_by_key(key, since_unix_s=since_unix_s)
        before = self._spending.get(key)
        recent = [entry for entry in before.unposted if now_s - entry[0] < POSTED_WITHIN_S] if before else []
        loaded = self._spending[key] = BudgetSpending(since_unix_s, posted, now_s, recent)
        return loaded
