"""Collected matches in a real Postgres: versions, certificates, records, and how long they are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store import lease_matches
from sparewatt.store.database import Database
from tests.integration.databases import fresh_database

ORDER, OTHER = "0x" + "01" * 32, "0x" + "02" * 32


@pytest.fixture
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with fresh_database(server) as dsn:
        yield dsn


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    database = await Database.connect(dsn)
    yield database
    await database.close()


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


async def test_a_match_grows_by_versions_and_keeps_its_first_certificate(database: Database) -> None:
    store = database.lease_matches
    assert (await store.find(ORDER, 0), await store.find_version(ORDER, 0)) == (None, 0)
    await store.save(ORDER, 0, opened_at=5, evidence="{}")
    await store.save(ORDER, 0, opened_at=5, evidence='{"a":1}', certificate="first")
    await store.save(ORDER, 0, opened_at=5, evidence='{"a":2}', certificate="second")
    row = await store.find(ORDER, 0)
    assert row is not None
    assert (row.version, row.evidence, row.certificate, row.record_from) == (3, '{"a":2}', "first", None)
    await store.save(ORDER, 1, opened_at=9, evidence="{}")
    assert await store.list_attempts(ORDER) == [0, 1]
    assert [(each.order_id, each.attempt) for each in await store.list_certificates()] == [(ORDER, 0)]


async def test_the_first_record_stays(database: Database) -> None:
    store = database.lease_matches
    await store.save(ORDER, 0, opened_at=5, evidence="{}")
    assert await store.find_record(ORDER, 0) is None
    await store.save_record(ORDER, 0, record="one", said_by="0xa")
    await store.save_record(ORDER, 0, record="two", said_by="0xb")
    row = await store.find(ORDER, 0)
    assert row is not None
    assert (await store.find_record(ORDER, 0), row.record_from, row.version) == ("one", "0xa", 2)


async def test_an_old_certificate_is_not_submitted_any_more(database: Database, dsn: str) -> None:
    await database.lease_matches.save(ORDER, 0, opened_at=5, evidence="{}", certificate="one")
    await execute(dsn, "UPDATE lease_matches SET certified_at = now() - interval '1 hour'")
    assert await database.lease_matches.list_certificates() == []


async def test_what_is_old_or_too_much_is_forgotten_records_first(
    database: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = database.lease_matches
    for number in range(4):
        await store.save(ORDER, number, opened_at=5, evidence="{}")
        await store.save_record(ORDER, number, record="r", said_by="0xa")
    await store.save(OTHER, 0, opened_at=5, evidence="{}")
    await execute(dsn, "UPDATE lease_matches SET changed_at = now() - (9 - attempt) * interval '1 day'")
    await execute(dsn, f"UPDATE lease_matches SET changed_at = now() - interval '31 day' WHERE order_id = '{OTHER}'")  # noqa: S608
    monkeypatch.setattr(lease_matches, "RECORDS_KEPT_MAX", 2)
    monkeypatch.setattr(lease_matches, "MATCHES_KEPT_MAX", 3)
    await store.forget_old()
    assert await store.list_attempts(OTHER) == []
    assert await store.list_attempts(ORDER) == [1, 2, 3]
    assert [await store.find_record(ORDER, number) for number in (1, 2, 3)] == [None, "r", "r"]


async def test_new_events_wake_whoever_follows_the_market(database: Database) -> None:
    chain, events = database.chain, database.market_events
    await chain.begin_index(chain_id=1, genesis_hash=bytes(32), contracts={}, start=(0, bytes(32)))
    await chain.set_attempt_s(42)
    async with events.changed() as changed:
        index = await chain.index()
        assert index is not None
        await chain.advance_index(index.version, to=(1, b"a" * 32), head=1, blocks=[(1, b"a" * 32)], events=[])
        event = ChainEvent(2, 0, b"b" * 32, b"t" * 32, 0, "task_manager", "NoMatch", {"order_id": ORDER, "attempt": 0})
        version = index.version + 1
        assert not changed.is_set(), "a block without events wakes nobody"
        await chain.advance_index(version, to=(2, b"b" * 32), head=2, blocks=[(2, b"b" * 32)], events=[event])
        await asyncio.wait_for(changed.wait(), 5.0)
        changed.clear()
        await chain.roll_back_index(version + 1, to=(1, b"a" * 32), head=1)
        await asyncio.wait_for(changed.wait(), 5.0)
    found = await events.events_after((-1, 0), names=["task_manager.NoMatch"], limit=10)
    assert found is not None
    assert (found.attempt_s, found.events) == (42, ())


async def test_a_lost_connection_is_told(database: Database, dsn: str) -> None:
    async with database.market_events.changed() as changed:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        await execute(dsn, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608
        await asyncio.wait_for(changed.wait(), 5.0)
        assert changed.is_lost
    async with database.market_events.changed() as again:
        assert not again.is_lost


async def test_the_transaction_of_a_certificate_is_found_by_its_order(database: Database) -> None:
    chain = database.chain
    await chain.begin_index(chain_id=1, genesis_hash=bytes(32), contracts={}, start=(0, bytes(32)))
    index = await chain.index()
    assert index is not None
    args = {"order_id": ORDER, "attempt": 1}
    event = ChainEvent(1, 0, b"b" * 32, b"t" * 32, 0, "task_manager", "MatchAccepted", args, 77)
    await chain.advance_index(index.version, to=(1, b"b" * 32), head=1, blocks=[(1, b"b" * 32)], events=[event])
    assert await database.lease_matches.find_acceptance(ORDER, 1) == ("0x" + (b"t" * 32).hex(), 77)
    assert await database.lease_matches.find_acceptance(ORDER, 0) is None
