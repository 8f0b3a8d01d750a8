"""Stored responses, and what else clients store, in a real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from sparewatt.core.ids import NETWORK_ACCOUNT
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.database import Database, KeyTerms
from sparewatt.store.documents import DocumentStore
from sparewatt.store.responses import ABANDONED_S, ResponseStore
from tests.integration.databases import fresh_database
from tests.unit.store.documents_suite import DocumentSuite
from tests.unit.store.responses_suite import KEY, OTHER, ResponseSuite, finish, put


@pytest.fixture
async def dsn(server: EmbeddedPostgres) -> AsyncIterator[str]:
    async with fresh_database(server) as dsn:
        yield dsn


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    database = await Database.connect(dsn)
    for key_id in (KEY, OTHER):
        terms = KeyTerms(name=key_id)
        hashed = key_id.encode().ljust(32)
        await database.insert_key(
            key_id=key_id, account_id=NETWORK_ACCOUNT, hashed=hashed, prefix="sk", scopes=["inference"], terms=terms
        )
    yield database
    await database.close()


class TestStoredResponses(ResponseSuite):
    @pytest.fixture
    def store(self, database: Database) -> ResponseStore:
        return database.responses

    async def test_those_of_a_revoked_key_are_forgotten(self, store: ResponseStore, database: Database) -> None:
        await put(store, "resp_1")
        await put(store, "resp_2", key=OTHER)
        await database.revoke_key(OTHER, account_id=None)
        await store.forget_old()
        assert await store.find("resp_1", key_id=KEY) is not None
        assert await store.find("resp_2", key_id=OTHER) is None

    async def test_one_whose_gateway_is_silent_is_abandoned_until_it_says_something(
        self, store: ResponseStore, dsn: str
    ) -> None:
        await put(store, "resp_1")
        connection = await asyncpg.connect(dsn)
        await connection.execute("UPDATE responses SET tended_at = now() - make_interval(secs => $1)", ABANDONED_S + 1)
        await connection.close()
        found = await store.find("resp_1", key_id=KEY)
        assert found is not None
        assert found.abandoned
        await store.heartbeat(["resp_1"])
        found = await store.find("resp_1", key_id=KEY)
        assert found is not None
        assert not found.abandoned
        await finish(store, "resp_1")
        assert await store.heartbeat(["resp_1"]) == []


class TestStoredDocuments(DocumentSuite):
    @pytest.fixture
    def store(self, database: Database) -> DocumentStore:
        return database.documents
