"""A backup of a network that goes on working: its database at one moment, and the files that belong to that moment.

The journals matter most: a job is in the books, or in the journal of the gateway that ran it, or in both. They are
append-only until they are rewritten, so they are opened before the database's moment and read after it; if one was
rewritten in between, the moment is taken anew. What is in both is posted once, by the rules of the books.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import BinaryIO

from sparewatt import __version__
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import BACKUP_FILES_MAX, BACKUP_TRIES_MAX
from sparewatt.gateway.accounting import JOURNALS
from sparewatt.gateway.backup.archive import (
    FILES,
    FORMAT,
    TABLES,
    Manifest,
    Member,
    member_of,
    write_archive,
)
from sparewatt.ledger.journal import JOURNAL_FILE
from sparewatt.store.snapshot import DatabaseSnapshot, SnapshotSchema, open_snapshot

SETTINGS_FILE = "settings.toml"
_NOT_KEPT_DIRS = frozenset({"postgres", "logs", JOURNALS, "socket"})
_NOT_KEPT = frozenset({"lock", "ready", "ready.json", "gateway.port", JOURNAL_FILE})
_NOT_KEPT_SUFFIXES = (".log", ".log.1", ".tmp", ".fresh")
PAUSE_S = 0.02


async def write_backup(
    target: BinaryIO, *, dsn: str, data: Path, config: Path | None, secret: str | None, packed: bool, clock: Clock
) -> Manifest:
    """Everything into one tar. `secret` is written where the directory has none. Raises StartupError."""
    with tempfile.TemporaryDirectory(prefix=".sparewatt-backup-", dir=_roomy(target)) as folder:
        staging = Path(folder)
        async with _moment(dsn, data, staging) as snapshot:
            made_at = clock.unix_s()
            shape = await _copy_tables(snapshot, staging)
        await asyncio.to_thread(_copy_files, data, staging, config, secret)
        manifest = Manifest(FORMAT, __version__, made_at, shape, await asyncio.to_thread(_members, staging))
        await asyncio.to_thread(write_archive, target, manifest, staging, packed=packed)
    return manifest


def _members(staging: Path) -> list[Member]:
    names = sorted(path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file())
    return [member_of(name, staging / name) for name in names]


def _roomy(target: BinaryIO) -> Path | None:
    """Beside the target, whose disk has to have the room; the system's place when it is a pipe."""
    name = getattr(target, "name", None)
    return Path(name).parent if isinstance(name, str) and name.startswith("/") else None


@asynccontextmanager
async def _moment(dsn: str, data: Path, staging: Path) -> AsyncIterator[DatabaseSnapshot]:
    """A snapshot, and the journals that belong to it."""
    for _ in range(BACKUP_TRIES_MAX):
        with ExitStack() as stack:
            journals = {path: stack.enter_context(path.open("rb")) for path in _journals(data)}
            async with open_snapshot(dsn) as snapshot:
                if await asyncio.to_thread(_take_journals, journals, data, staging):
                    yield snapshot
                    return
        await asyncio.sleep(PAUSE_S)
    raise StartupError("The gateway's journals change faster than they can be read. Try again in a minute.")


def _journals(data: Path) -> list[Path]:
    """Of every gateway that keeps one in this directory, also one level down, as `sparewatt up` has it."""
    return sorted(path for root in (data, data / "gateway") for path in root.glob(f"{JOURNALS}/*/{JOURNAL_FILE}"))


def _take_journals(journals: Mapping[Path, BinaryIO], data: Path, staging: Path) -> bool:
    """False if one was rewritten or put away since it was opened. The open file keeps its number from being reused."""
    shutil.rmtree(staging / FILES, ignore_errors=True)  # of the try before
    for path, file in journals.items():
        target = staging / FILES / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    return all(_is_same(path, file) for path, file in journals.items())


def _is_same(path: Path, file: BinaryIO) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(file.fileno())
    return (now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)


async def _copy_tables(snapshot: DatabaseSnapshot, staging: Path) -> SnapshotSchema:
    (staging / TABLES).mkdir()
    shape = await snapshot.read_schema()
    tables = [await snapshot.copy_out(table, staging / TABLES / table.name) for table in shape.tables]
    return SnapshotSchema(shape.migrations, tables, shape.partitions, shape.sequences)


def _copy_files(data: Path, staging: Path, config: Path | None, secret: str | None) -> None:
    files = list(_kept_files(data))
    if len(files) > BACKUP_FILES_MAX:
        raise StartupError(f"{data} holds more than {BACKUP_FILES_MAX} files. Is it a gateway's data directory?")
    for path in files:
        _copy(path, staging / FILES / path.relative_to(data))
    if config is not None:
        _copy(config, staging / FILES / SETTINGS_FILE)
    if secret is not None and not any(path.name == "secret" for path in files):
        target = staging / FILES / "secret"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(secret.strip() + "\n")


def _kept_files(data: Path) -> Iterator[Path]:
    """Keys, secret and records: what is neither a database, nor a log, nor of the moment."""
    for folder, subfolders, names in os.walk(data):
        subfolders[:] = sorted(name for name in subfolders if name not in _NOT_KEPT_DIRS and not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            passing = name in _NOT_KEPT or name.startswith(".") or name.endswith(_NOT_KEPT_SUFFIXES)
            if not passing and path.is_file() and not path.is_symlink():
                yield path


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise StartupError(f"Cannot read {source}: {error.strerror}.") from None
