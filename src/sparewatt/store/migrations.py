"""Schema migrations: plain SQL files, applied in order at start, each once, under an advisory lock of Postgres."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from sparewatt.core.errors import StartupError

PgConnection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"
_LOCK = 0x5AEE_3A77  # any number, the same in every process
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version int PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A file named like 0001_keys_and_nodes.sql. Once released it never changes."""

    version: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def shipped_migrations() -> list[Migration]:
    files = sorted(resources.files(__package__).joinpath("migrations").iterdir(), key=lambda f: f.name)
    return [
        Migration(int(f.name[:4]), f.name[5:-4], f.read_text(encoding="utf-8"))
        for f in files
        if f.name.endswith(".sql")
    ]


async def migrate(connection: PgConnection, wanted: Sequence[Migration] | None = None) -> list[int]:
    """Bring the schema up to date, or only as far as `wanted`. Returns the versions that were applied now."""
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        await connection.execute(_TABLE)
        rows = await connection.fetch("SELECT version, sha256 FROM schema_migrations")
        done = {int(row["version"]): str(row["sha256"]) for row in rows}
        _check_history(done)
        wanted = shipped_migrations() if wanted is None else wanted
        return [m.version for m in wanted if m.version not in done and await _apply(connection, m)]
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)


def _check_history(done: dict[int, str]) -> None:
    known = {m.version: m.sha256 for m in shipped_migrations()}
    for version, sha256 in done.items():
        if version not in known:
            raise StartupError(f"The database is newer than this program (schema {version}). Update sparewatt.")
        if known[version] != sha256:
            raise StartupError(f"Migration {version} was changed after it had been applied. Restore its file.")


async def _apply(connection: PgConnection, migration: Migration) -> bool:
    async with connection.transaction():
        await connection.execute(migration.text)
        await connection.execute(
            "INSERT INTO schema_migrations (version, name, sha256) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.sha256,
        )
    return True
