"""One Postgres for many tests: each gets a database of its own, copied from one that is migrated."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from unittest.mock import patch

import asyncpg

from sparewatt.postgres import server as postgres_server
from sparewatt.postgres.server import EmbeddedPostgres
from sparewatt.store.connection_pool import ConnectionPool

_numbers = itertools.count(1)


@contextmanager
def running_postgres(directory: Path) -> Iterator[EmbeddedPostgres]:
    """With a loop of its own, so that it outlives each test's. It waits for no disk, since no test pulls its plug."""
    with asyncio.Runner() as runner:
        server = EmbeddedPostgres(directory / "pg")
        with patch.dict(postgres_server.SETTINGS, fsync="off", full_page_writes="off", max_connections="200"):
            runner.run(server.start())
        try:
            runner.run(_migrate(server.dsn))
            yield server
        finally:
            runner.run(server.stop())


async def _migrate(dsn: str) -> None:
    pool = await ConnectionPool.connect(dsn)
    await pool.close()


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The connection string of an empty database with today's schema."""
    name = f"test_{next(_numbers)}"
    async with _administrator(server) as admin:
        await _copy(server, admin, name)
        yield _dsn_of(server, name)
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def migrated_database(server: EmbeddedPostgres) -> str:
    """The same; it stays for as long as the server does."""
    name = f"kept_{next(_numbers)}"
    async with _administrator(server) as admin:
        await _copy(server, admin, name)
    return _dsn_of(server, name)


async def empty_database(server: EmbeddedPostgres, name: str) -> str:
    """One without a schema; it stays likewise."""
    async with _administrator(server) as admin:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return _dsn_of(server, name)


async def _copy(server: EmbeddedPostgres, admin: asyncpg.Connection[asyncpg.Record], name: str) -> None:
    template = server.dsn.partition("?")[0].rpartition("/")[2]
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")  # half of the time
    await admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")


@asynccontextmanager
async def _administrator(server: EmbeddedPostgres) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(_dsn_of(server, "postgres"))
    try:
        yield connection
    finally:
        await connection.close()


def _dsn_of(server: EmbeddedPostgres, name: str) -> str:
    path, _, rest = server.dsn.partition("?")
    return f"{path.rpartition('/')[0]}/{name}?{rest}"
