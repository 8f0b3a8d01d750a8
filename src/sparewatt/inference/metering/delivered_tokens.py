"""How many tokens each owner delivered of each model in the last days: the weight of his prices (`usual_price.py`).

Counted from what was billed, not from what nodes claim; what an owner buys from his own nodes does not count. All
processes of all gateways add to the same rows of Postgres, and each reads the sums back.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.inference.metering.rules import NOBODY
from sparewatt.ledger.model import ClosedJob
from sparewatt.store.delivered_tokens import DailyDelivery, DeliveredSum

EXCHANGE_S = 10.0
WAITING_MAX = 100_000
"""Models, owners and days that wait for the database; when it is away for longer, new ones are not counted."""

_Key = tuple[ModelId, AccountId, dt.date]
_NONE: Mapping[AccountId, int] = {}


class DeliveredTokens:
    def __init__(self) -> None:
        self._stored: dict[ModelId, dict[AccountId, int]] = {}
        """The sums as of the last read, and what was counted here since."""
        self._waiting: dict[_Key, int] = {}

    def of(self, model: ModelId) -> Mapping[AccountId, int]:
        """Tokens read and written, by owner."""
        return self._stored.get(model, _NONE)

    def add(self, closed: ClosedJob) -> None:
        """A job is over: what its nodes brought the client."""
        job = closed.job
        for delivery in closed.deliveries:
            owner = delivery.owner
            if owner not in {job.account, NOBODY}:
                day = dt.datetime.fromtimestamp(closed.closed_unix_s, tz=dt.UTC).date()
                self._add((job.model, owner, day), delivery.prompt_tokens + delivery.completion_tokens)

    def take(self) -> list[DailyDelivery]:
        """What is not stored yet; give it back if storing fails."""
        waiting, self._waiting = self._waiting, {}
        return [DailyDelivery(model, owner, day, tokens) for (model, owner, day), tokens in waiting.items()]

    def give_back(self, deliveries: Sequence[DailyDelivery]) -> None:
        for each in deliveries:
            key = (each.model, each.owner, each.day)
            self._waiting[key] = self._waiting.get(key, 0) + each.tokens

    def load(self, sums: Sequence[DeliveredSum]) -> None:
        """Replace the sums by those of the database; what waits to be stored is added to them."""
        self._stored = {}
        for each in sums:
            self._stored.setdefault(each.model, {})[each.owner] = each.tokens
        for (model, owner, _), tokens in self._waiting.items():
            self._count(model, owner, tokens)

    def _add(self, key: _Key, tokens: int) -> None:
        before = self._waiting.get(key)
        if before is not None or len(self._waiting) < WAITING_MAX:
            self._waiting[key] = (before or 0) + tokens
            self._count(key[0], key[1], tokens)

    def _count(self, model: ModelId, owner: AccountId, tokens: int) -> None:
        by_owner = self._stored.setdefault(model, {})
        by_owner[owner] = by_owner.get(owner, 0) + tokens
