"""One Postgres for many tests: each gets a database of its own, copied from one that is migrated."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg

from sparewatt.store.pool import Pool
from sparewatt.supervisor.postgres import EmbeddedPostgres

_numbers = itertools.count(1)


@contextmanager
def running_postgres(directory: Path) -> Iterator[EmbeddedPostgres]:
    """With a loop of its own, so that it outlives each test's."""
    with asyncio.Runner() as runner:
        server = EmbeddedPostgres(directory / "pg")
        runner.run(server.start())
        try:
            runner.run(_migrate(server.dsn))
            yield server
        finally:
            runner.run(server.stop())


async def _migrate(dsn: str) -> None:
    pool = await Pool.connect(dsn)
    await pool.close()


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """The connection string of an empty database with today's schema."""
    name = f"test_{next(_numbers)}"
    path, _, rest = server.dsn.partition("?")
    admin = await asyncpg.connect(f"{path.rpartition('/')[0]}/postgres?{rest}")
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {path.rpartition('/')[2]}")
        await admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")  # no test pulls the plug
        yield f"{path.rpartition('/')[0]}/{name}?{rest}"
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()
