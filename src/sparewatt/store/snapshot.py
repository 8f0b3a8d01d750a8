"""The whole database at one moment, table by table, and the way back into an empty one.

Reading is one repeatable-read transaction, so a network that goes on working changes nothing about it. Writing is one
transaction too: the target is what the source was, or stays empty. It speaks SQL alone: any Postgres that the network
can use will do, whatever its version, and no other program is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.store.migrations import Migration, PgConnection, migrate, shipped_migrations
from sparewatt.store.queries import sql

CONNECT_S = 10.0
COPY_S = 6 * 3600.0
"""For one table: hundreds of gigabytes."""


class SnapshotPartition(msgspec.Struct, frozen=True):
    name: str
    parent: str
    bound: str


class SnapshotTable(msgspec.Struct, frozen=True):
    name: str
    columns: list[str]
    rows: int = 0


class SnapshotSchema(msgspec.Struct, frozen=True):
    """What the tables of a snapshot need to exist again."""

    migrations: dict[int, str]
    """By version, with the hash of each."""
    tables: list[SnapshotTable]
    """Each after those that it refers to."""
    partitions: list[SnapshotPartition]
    sequences: dict[str, int]


class DatabaseSnapshot:
    """An open transaction that sees one moment."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def read_schema(self) -> SnapshotSchema:
        rows = self._connection.fetch
        tables = [SnapshotTable(row["name"], list(row["columns"])) for row in await rows(sql("snapshot_tables"))]
        needs = [(row["name"], row["needs"]) for row in await rows(sql("snapshot_references"))]
        return SnapshotSchema(
            migrations={row["version"]: row["sha256"] for row in await rows(sql("snapshot_migrations"))},
            tables=in_dependency_order(tables, needs),
            partitions=[SnapshotPartition(**dict(row.items())) for row in await rows(sql("snapshot_partitions"))],
            sequences={row["name"]: row["last_value"] for row in await rows(sql("snapshot_sequences"))},
        )

    async def copy_out(self, table: SnapshotTable, target: Path) -> SnapshotTable:
        """Write its rows as text; tells how many."""
        query = f"SELECT {_list(table.columns)} FROM {_quoted(table.name)}"  # noqa: S608 (names from the catalogue)
        done = await self._connection.copy_from_query(query, output=target, timeout=COPY_S)
        return msgspec.structs.replace(table, rows=int(done.rpartition(" ")[2]))


@asynccontextmanager
async def open_snapshot(dsn: str) -> AsyncIterator[DatabaseSnapshot]:
    """Raises StartupError if the database cannot be read."""
    connection = await _connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT 1")  # the moment is that of the first statement
            yield DatabaseSnapshot(connection)
    finally:
        await connection.close()


async def restore_snapshot(
    dsn: str, shape: SnapshotSchema, source_of: Callable[[str], Path], before_commit: Callable[[], None]
) -> None:
    """Make an empty database what a snapshot was. Raises StartupError, having changed nothing."""
    wanted = _known_migrations(shape.migrations)
    connection = await _connect(dsn)
    try:
        if not await connection.fetchval(sql("snapshot_is_empty")):
            raise StartupError("The database is not empty. Restore into a new one: nothing is ever written over.")
        async with connection.transaction():
            await migrate(connection, wanted)
            await _prepare(connection, shape)
            for table in shape.tables:
                await _copy_in(connection, table, source_of(table.name))
            for name, value in shape.sequences.items():
                await connection.execute(sql("set_sequence"), name, value)
            for table in shape.tables:
                await connection.execute(f"ALTER TABLE {_quoted(table.name)} ENABLE TRIGGER USER")
            before_commit()
    except (asyncpg.PostgresError, OSError) as error:
        raise StartupError(f"The backup cannot be put into this database: {error}.") from None
    finally:
        await connection.close()


async def _prepare(connection: PgConnection, shape: SnapshotSchema) -> None:
    """Rows that a new schema brings along go; months get their partitions; what watches over changes looks away."""
    names = ", ".join(_quoted(table.name) for table in shape.tables)
    await connection.execute(f"TRUNCATE {names}")
    for part in shape.partitions:
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(part.name)} PARTITION OF {_quoted(part.parent)} {_bound(part.bound)}"
        )
    for table in shape.tables:
        await connection.execute(f"ALTER TABLE {_quoted(table.name)} DISABLE TRIGGER USER")


async def _copy_in(connection: PgConnection, table: SnapshotTable, source: Path) -> None:
    done = await connection.copy_to_table(table.name, source=source, columns=table.columns, timeout=COPY_S)
    if int(done.rpartition(" ")[2]) != table.rows:
        raise StartupError(f"The backup's table {table.name} is incomplete.")


def in_dependency_order(tables: Sequence[SnapshotTable], needs: Sequence[tuple[str, str]]) -> list[SnapshotTable]:
    """Each table after those that it refers to; in a ring that is not possible. Pure."""
    waiting, placed = {table.name: table for table in tables}, list[SnapshotTable]()
    while waiting:
        free = [name for name in waiting if not any(need in waiting for one, need in needs if one == name)]
        if not free:
            raise StartupError(f"Tables refer to each other in a ring: {', '.join(sorted(waiting))}.")
        placed += [waiting.pop(name) for name in free]
    return placed


def _known_migrations(found: Mapping[int, str]) -> list[Migration]:
    """Those of the snapshot; the rest is added by the first start after."""
    shipped = {migration.version: migration for migration in shipped_migrations()}
    for version, sha256 in found.items():
        if version not in shipped:
            raise StartupError(f"The backup is of a newer release (schema {version}). Update sparewatt first.")
        if shipped[version].sha256 != sha256:
            raise StartupError(f"The backup's schema {version} is not the one of this release.")
    return [shipped[version] for version in sorted(found)]


def _bound(text: str) -> str:
    """As the catalogue wrote it; a backup that was tampered with could hold anything."""
    if not text.startswith("FOR VALUES FROM (") or ";" in text:
        raise StartupError("The backup holds a partition of a kind that this release does not make.")
    return text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


async def _connect(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncpg.connect(dsn)
    except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
        raise StartupError(f"Cannot connect to Postgres ({type(error).__name__}: {error}).") from None
