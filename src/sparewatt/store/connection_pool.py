"""The connection pool to Postgres, and the named SQL statements that run on it.

Statements are read once from queries/*.sql, where each begins with a line `-- name: some_name`. While the database is
away, asyncpg's errors become StoreUnavailable, and DiskFull if that is the reason.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import resources
from typing import Any, TypeVar

import asyncpg

from sparewatt.core.cleanup import on_failure
from sparewatt.core.errors import DiskFull, StartupError, StoreUnavailable
from sparewatt.store.migrations import PgConnection, migrate

CONNECT_S = 10.0
COMMAND_S = 10.0
RETRY_AFTER_S = 2.0

_T = TypeVar("_T")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
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
"""Refused, timed out, closed, starting up, shutting down, out of connections or disk, or rolled back by Postgres in
favour of another transaction (a deadlock, say)."""


@functools.cache
def _statements() -> dict[str, str]:
    statements: dict[str, str] = {}
    for file in sorted(resources.files(__package__).joinpath("queries").iterdir(), key=lambda f: f.name):
        pieces = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
            if name in statements:
                raise ValueError(f"the query {name} is defined twice")
            statements[name] = text.strip()
    return statements


def sql(name: str) -> str:
    return _statements()[name]


class Notification(asyncio.Event):
    """Set by each notification on a channel."""

    is_lost = False
    """Whether its connection broke, so that no more come. It is set then as well."""


class ConnectionPool:
    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], is_disk_low: Callable[[], bool]) -> None:
        self._pool = pool
        self._is_disk_low = is_disk_low
        self._was_disk_full = False

    @classmethod
    async def connect(cls, dsn: str, *, is_disk_low: Callable[[], bool] = lambda: False) -> ConnectionPool:
        """Connect and bring the schema up to date. Raises StartupError with what to check.

        `is_disk_low`: whether a server on this machine has no room for its files. One that stopped because of that only
        refuses connections, and cannot say why.
        """
        try:
            async with asyncio.timeout(CONNECT_S):
                pool = await asyncpg.create_pool(dsn, min_size=1, max_size=8, command_timeout=COMMAND_S)
        except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
            raise StartupError(
                f"Cannot connect to Postgres ({type(error).__name__}: {error}). Check DATABASE_URL."
            ) from None
        with on_failure(pool.terminate):
            try:
                async with pool.acquire() as connection:
                    await migrate(connection)
            except TimeoutError:
                raise StartupError("Another process has been changing the database's schema for too long.") from None
        return cls(pool, is_disk_low)

    def take_disk_full(self) -> bool:
        """Whether Postgres has said since the last call that its disk is full."""
        was_full, self._was_disk_full = self._was_disk_full, False
        return was_full

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except _UNAVAILABLE as error:
            is_reported = isinstance(error, asyncpg.DiskFullError)
            self._was_disk_full = self._was_disk_full or is_reported
            if is_reported or self._is_disk_low():
                raise DiskFull(
                    "The disk of the network's database is full: nothing new can be stored until there is room.",
                    retry_after_s=RETRY_AFTER_S,
                ) from None
            raise StoreUnavailable(
                "The network's database is away. Answers still work; try this again in a moment.",
                retry_after_s=RETRY_AFTER_S,
            ) from None

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def rows(self, name: str, *values: object) -> list[asyncpg.Record]:
        with self._translate_errors():
            return await self._pool.fetch(sql(name), *values)

    async def rows_as(self, make: Callable[..., _T], name: str, *values: object) -> list[_T]:
        """Rows whose columns are the arguments of `make`, by name."""
        return [make(**row) for row in await self.rows(name, *values)]

    async def row(self, name: str, *values: object) -> asyncpg.Record | None:
        with self._translate_errors():
            return await self._pool.fetchrow(sql(name), *values)

    async def row_as(self, make: Callable[..., _T], name: str, *values: object) -> _T | None:
        row = await self.row(name, *values)
        return None if row is None else make(**row)

    async def value(self, name: str, *values: object) -> Any:
        with self._translate_errors():
            return await self._pool.fetchval(sql(name), *values)

    async def execute(self, name: str, *values: object) -> None:
        with self._translate_errors():
            await self._pool.execute(sql(name), *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PgConnection]:
        """All or nothing. Rolled back if the block raises."""
        with self._translate_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[Notification]:
        """An event that each notification on the channel sets. It takes one of the pool's connections."""
        notified = Notification()

        def on_notify(*_: object) -> None:
            notified.set()

        def on_lost(*_: object) -> None:
            notified.is_lost = True
            notified.set()

        with self._translate_errors():
            connection = await self._pool.acquire()
        try:
            with self._translate_errors():
                await connection.add_listener(channel, on_notify)
                connection.add_termination_listener(on_lost)
            yield notified
        finally:
            with suppress(*_UNAVAILABLE):
                connection.remove_termination_listener(on_lost)
                await connection.remove_listener(channel, on_notify)
            await self._pool.release(connection)


class Store:
    """The statements of one subject, as methods; each subclass is one."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
