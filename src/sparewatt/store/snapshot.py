"""Copies the whole database as of one moment, table by table, and restores it into an empty one.

Reading is one repeatable-read transaction, so a network that goes on working does not change the copy. Restoring is one
transaction too: the target becomes what the source was, or stays empty. Both use plain SQL and COPY, so that source and
target may be different versions of Postgres and no other program is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.store.connection_pool import sql
from sparewatt.store.migrations import Migration, PgConnection, migrate, shipped_migrations

CONNECT_S = 10.0
COPY_S = 6 * 3600.0
"""For one table, which may have hundreds of gigabytes."""


class SnapshotPartition(msgspec.Struct, frozen=True):
    name: str
    parent: str
    bound: str


class SnapshotTable(msgspec.Struct, frozen=True):
    name: str
    columns: list[str]
    rows: int = 0


class SnapshotSchema(msgspec.Struct, frozen=True):
    migrations: dict[int, str]
    """Version to SHA-256."""
    tables: list[SnapshotTable]
    """Each after the tables that it refers to."""
    partitions: list[SnapshotPartition]
    sequences: dict[str, int]


class DatabaseSnapshot:
    """An open transaction that sees one moment."""

    def __init__(self, connection: PgConnection) -> None:
        self._connection = connection

    async def read_schema(self) -> SnapshotSchema:
        rows = self._connection.fetch
        tables = [SnapshotTable(row["name"], list(row["columns"])) for row in await rows(sql("snapshot_tables"))]
        needs = [(row["name"], row["needs"]) for row in await rows(sql("snapshot_references"))]
        return SnapshotSchema(
            migrations={row["version"]: row["sha256"] for row in await rows(sql("snapshot_migrations"))},
            tables=in_dependency_order(tables, needs),
            partitions=[SnapshotPartition(**row) for row in await rows(sql("snapshot_partitions"))],
            sequences={row["name"]: row["last_value"] for row in await rows(sql("snapshot_sequences"))},
        )

    async def copy_out(self, table: SnapshotTable, target: Path) -> SnapshotTable:
        """Write its rows as text. Returns the table with its row count."""
        query = f"SELECT {_list(table.columns)} FROM {_quoted(table.name)}"  # noqa: S608 (names from the catalogue)
        done = await self._connection.copy_from_query(query, output=target, timeout=COPY_S)
        return msgspec.structs.replace(table, rows=int(done.rpartition(" ")[2]))


@asynccontextmanager
async def open_snapshot(dsn: str) -> AsyncIterator[DatabaseSnapshot]:
    """Raises StartupError if the database cannot be read."""
    connection = await _connect(dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetchval("SELECT 1")  # Postgres takes the snapshot at the first statement
            yield DatabaseSnapshot(connection)
    finally:
        await connection.close()


async def restore_snapshot(
    dsn: str, schema: SnapshotSchema, source_of: Callable[[str], Path], before_commit: Callable[[], None]
) -> None:
    """Fill an empty database from a snapshot. Raises StartupError, having changed nothing."""
    migrations = _known_migrations(schema.migrations)
    connection = await _connect(dsn)
    try:
        if not await connection.fetchval(sql("snapshot_is_empty")):
            raise StartupError("The database is not empty. Restore into a new one: nothing is ever written over.")
        async with connection.transaction():
            await migrate(connection, migrations)
            await _prepare(connection, schema)
            for table in schema.tables:
                await _copy_in(connection, table, source_of(table.name))
            for name, value in schema.sequences.items():
                await connection.execute(sql("set_sequence"), name, value)
            for table in schema.tables:
                await connection.execute(f"ALTER TABLE {_quoted(table.name)} ENABLE TRIGGER USER")
            before_commit()
    except (asyncpg.PostgresError, OSError) as error:
        raise StartupError(f"The backup cannot be put into this database: {error}.") from None
    finally:
        await connection.close()


async def _prepare(connection: PgConnection, schema: SnapshotSchema) -> None:
    """Delete the rows that migrations insert, create the partitions of months, and disable triggers."""
    await connection.execute(f"TRUNCATE {_list([table.name for table in schema.tables])}")
    for part in schema.partitions:
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(part.name)} PARTITION OF {_quoted(part.parent)} {_bound(part.bound)}"
        )
    for table in schema.tables:
        await connection.execute(f"ALTER TABLE {_quoted(table.name)} DISABLE TRIGGER USER")


async def _copy_in(connection: PgConnection, table: SnapshotTable, source: Path) -> None:
    done = await connection.copy_to_table(table.name, source=source, columns=table.columns, timeout=COPY_S)
    if int(done.rpartition(" ")[2]) != table.rows:
        raise StartupError(f"The backup's table {table.name} is incomplete.")


def in_dependency_order(tables: Sequence[SnapshotTable], needs: Sequence[tuple[str, str]]) -> list[SnapshotTable]:
    """A topological sort by foreign keys: each table after those that it refers to. Pure."""
    remaining, ordered = {table.name: table for table in tables}, list[SnapshotTable]()
    while remaining:
        free = [name for name in remaining if not any(need in remaining for one, need in needs if one == name)]
        if not free:
            raise StartupError(f"Tables refer to each other in a ring: {', '.join(sorted(remaining))}.")
        ordered += [remaining.pop(name) for name in free]
    return ordered


def _known_migrations(applied: Mapping[int, str]) -> list[Migration]:
    """The snapshot's migrations; newer ones are applied at the first start after the restore."""
    shipped = {migration.version: migration for migration in shipped_migrations()}
    for version, sha256 in applied.items():
        if version not in shipped:
            raise StartupError(f"The backup is of a newer release (schema {version}). Update sparewatt first.")
        if shipped[version].sha256 != sha256:
            raise StartupError(f"The backup's schema {version} is not the one of this release.")
    return [shipped[version] for version in sorted(applied)]


def _bound(text: str) -> str:
    """Checked, since a tampered backup could hold any SQL here."""
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
