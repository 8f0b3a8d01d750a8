"""Tokens that owners delivered, in a real Postgres: gateways add to the same days, and only the last days count."""

from __future__ import annotations

import datetime as dt

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.delivered_tokens import KEPT_DAYS, DailyDelivery, DeliveredSum
from tests.integration.databases import fresh_database

LLAMA, QWEN = ModelId("llama-3-8b"), ModelId("qwen3-8b")
ANN, BEN = AccountId("acc_ann"), AccountId("acc_ben")


async def test_gateways_add_to_the_same_days_and_only_the_last_days_count(server: EmbeddedPostgres) -> None:
    today = dt.datetime.now(tz=dt.UTC).date()
    before, old = (today - dt.timedelta(days=days) for days in (KEPT_DAYS - 2, KEPT_DAYS + 1))
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        store = database.delivered_tokens
        assert await store.sums() == []
        await store.add([DailyDelivery(LLAMA, ANN, today, 10), DailyDelivery(LLAMA, ANN, before, 5)])
        await store.add([DailyDelivery(LLAMA, ANN, today, 3), DailyDelivery(LLAMA, BEN, today, 7)])
        await store.add([DailyDelivery(QWEN, ANN, today, 1), DailyDelivery(LLAMA, BEN, old, 1_000)])
        expected = [DeliveredSum(LLAMA, ANN, 18), DeliveredSum(LLAMA, BEN, 7), DeliveredSum(QWEN, ANN, 1)]
        assert await store.sums() == expected
        await store.forget_old()
        assert await store.sums() == expected
        await database.close()
