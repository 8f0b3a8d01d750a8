"""Votes of the newest auctions, read out of the stored evidence in a real Postgres."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from sparewatt.leasing.relay.evidence import MatchEvidence, SeenVote
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database
from sparewatt.store.lease_matches import VOTES_READ_BYTES_MAX
from tests.integration.databases import fresh_database

ORDERS = ["0x" + pair * 32 for pair in ("0a", "0b", "0c")]
VOTE = SeenVote("0x" + "7" * 40, 1, "0x" + "dd" * 32)


@pytest.fixture
async def database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    async with fresh_database(server) as dsn:
        database = await Database.connect(dsn)
        yield database
        await database.close()


async def save(database: Database, order_id: str, evidence: str, *, attempt: int = 0) -> None:
    await database.lease_matches.save(order_id, attempt, opened_at=1, evidence=evidence)


def evidence_of(order_id: str, *votes: SeenVote) -> str:
    evidence = MatchEvidence(order_id=order_id, attempt=0, seen_unix_s=1.0, votes=list(votes))
    return msgspec.json.encode(evidence).decode()


async def test_only_the_votes_of_the_newest_attempts_are_read(database: Database) -> None:
    for order_id in ORDERS:
        await save(database, order_id, evidence_of(order_id, VOTE))
    await save(database, ORDERS[0], evidence_of(ORDERS[0], VOTE, VOTE))
    found = await database.lease_matches.list_votes(limit=2)
    assert [row.order_id for row in found] == [ORDERS[0], ORDERS[2]]
    assert msgspec.json.decode(found[0].votes, type=list[SeenVote]) == [VOTE, VOTE]
    assert await database.lease_matches.list_votes(limit=0) == []


async def test_evidence_without_votes_has_none_and_a_flood_is_left_out(database: Database) -> None:
    await save(database, ORDERS[0], "{}")
    await save(database, ORDERS[1], json.dumps({"votes": [], "words": "x" * VOTES_READ_BYTES_MAX}))
    (row,) = await database.lease_matches.list_votes(limit=9)
    assert (row.order_id, row.attempt, row.votes) == (ORDERS[0], 0, "[]")
