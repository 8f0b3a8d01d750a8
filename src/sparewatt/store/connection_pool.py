"""Connections to Postgres. A database that is away raises StoreUnavailable, whatever asyncpg calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from sparewatt.core.errors import StartupError, StoreUnavailable
from sparewatt.store.migrations import PgConnection, migrate
from sparewatt.store.queries import sql

CONNECT_S = 10.0
COMMAND_S = 10.0
RETRY_AFTER_S = 2.0

_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InternalClientError,
    asyncpg.TransactionRollbackError,
)
"""Refused, timed out, closed under our hands, starting up, shutting down, out of connections or of disk; or chosen by
Postgres to give way to another transaction."""


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _UNAVAILABLE:
        raise StoreUnavailable(
            "The network's database is away. Answers still work; try this again in a moment.",
            retry_after_s=RETRY_AFTER_S,
        ) from None


class ConnectionPool:
    """Named statements on pooled connections."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, dsn: str) -> ConnectionPool:
        """Connect and bring the schema up to date. Raises StartupError with what to check."""
        try:
            async with asyncio.timeout(CONNECT_S):
                pool = await asyncpg.create_pool(dsn, min_size=1, max_size=8, command_timeout=COMMAND_S)
        except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
            raise StartupError(
                f"Cannot connect to Postgres ({type(error).__name__}: {error}). Check DATABASE_URL."
            ) from None
        try:
            async with pool.acquire() as connection:
                await migrate(connection)
        except TimeoutError:
            pool.terminate()
            raise StartupError("Another process has been changing the database's schema for too long.") from None
        except BaseException:
            pool.terminate()
            raise
        return cls(pool)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def rows(self, name: str, *values: object) -> list[asyncpg.Record]:
        with _translate_errors():
            return await self._pool.fetch(sql(name), *values)

    async def row(self, name: str, *values: object) -> asyncpg.Record | None:
        with _translate_errors():
            return await self._pool.fetchrow(sql(name), *values)

    async def value(self, name: str, *values: object) -> Any:
        with _translate_errors():
            return await self._pool.fetchval(sql(name), *values)

    async def execute(self, name: str, *values: object) -> None:
        with _translate_errors():
            await self._pool.execute(sql(name), *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PgConnection]:
        """All or nothing."""
        with _translate_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection
