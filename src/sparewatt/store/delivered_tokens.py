"""Tokens that owners delivered, by model and day. The usual price of a model is weighed by them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.store.connection_pool import Store

KEPT_DAYS = 7
"""So long a sale says something about a price."""
SUMS_READ_MAX = 100_000
"""Models and owners that a gateway holds in memory, those with the most tokens."""


@dataclass(frozen=True, slots=True)
class DailyDelivery:
    model: ModelId
    owner: AccountId
    day: dt.date
    tokens: int


@dataclass(frozen=True, slots=True)
class DeliveredSum:
    model: ModelId
    owner: AccountId
    tokens: int


class DeliveredTokenStore(Store):
    async def add(self, deliveries: Sequence[DailyDelivery]) -> None:
        """All or none. Each model, owner and day at most once."""
        await self._pool.execute("add_delivered_tokens", *zip(*map(astuple, deliveries), strict=True))

    async def sums(self) -> list[DeliveredSum]:
        """Of the last days."""
        return await self._pool.rows_as(DeliveredSum, "delivered_tokens_sums", KEPT_DAYS, SUMS_READ_MAX)

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_delivered_tokens", KEPT_DAYS)
