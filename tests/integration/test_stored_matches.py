"""Explanations in a real Postgres: written in batches, read whole, forgotten after a week."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from sparewatt.core.ids import KeyId, MatchId
from sparewatt.core.limits import MATCHES_STORED_DAYS
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database, StoredMatch
from tests.integration.databases import fresh_database

DAY_S = 86_400.0


@pytest.fixture
async def database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        yield database
        await database.close()


def a_match(name: str, *, days_ago: float = 0.0, **explanation: object) -> StoredMatch:
    created_unix_s = time.time() - days_ago * DAY_S
    body = msgspec.json.encode({"match_id": name, **explanation})
    return StoredMatch(MatchId(name), KeyId("key_a"), created_unix_s, "failed", body)


async def test_matches_are_kept_whole_whatever_a_model_is_called_and_forgotten_after_a_week(database: Database) -> None:
    odd = a_match("match_odd", model="\x00 \U0001f4a9 \\u0000 \"'", cost=1e-300)
    old = a_match("match_old", days_ago=MATCHES_STORED_DAYS + 0.1)
    young = a_match("match_young", days_ago=MATCHES_STORED_DAYS - 0.1)
    await database.save_matches([odd, old, young])
    await database.save_matches([a_match("match_odd", model="another"), a_match("match_new")])
    assert await database.find_match(odd.id) == ("key_a", odd.explanation)
    assert await database.find_match(old.id) is not None
    await database.forget_old_matches()
    await database.forget_old_tokens()
    assert await database.find_match(old.id) is None
    assert await database.find_match(young.id) == ("key_a", young.explanation)
    assert await database.find_match(MatchId("match_unknown")) is None
