"""Online backup of a network, and its restoration: a snapshot of the database, and the files consistent with it.

The journals (write-ahead logs) matter most: a job is in the books, in the journal of the gateway that ran it, or in
both. Journals are append-only until they are rewritten, so they are opened before the snapshot and read after it; if
one was rewritten in between, the snapshot is taken again. A job that is in both is posted once, by its business id.
Restored journals are settled by the first gateway that starts there, as after a crash. Nothing is ever overwritten.

A backup is one tar: a manifest first, then tables, then files, each with its hash. It contains the network's secret,
so only its owner can read it. Only members that the manifest lists are unpacked, and none outside of the directory.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from sparewatt import __version__
from sparewatt.core.cleanup import on_failure
from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import MIB
from sparewatt.gateway.accounting import JOURNALS
from sparewatt.ledger.journal import JOURNAL_FILE
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.store.database import Database
from sparewatt.store.ledger import AuditResult
from sparewatt.store.snapshot import DatabaseSnapshot, SnapshotSchema, open_snapshot, restore_snapshot

FORMAT = 1
MANIFEST = "manifest.json"
TABLES, FILES = "tables", "files"
BACKUP_MANIFEST_BYTES_MAX = 16 * MIB
"""A data directory of ten thousand files needs one."""
_COPY_BYTES = 1 * MIB
BACKUP_FILES_MAX = 10_000
"""Files of a data directory; a network on one machine has dozens."""
BACKUP_TRIES_MAX = 100
"""Attempts at a snapshot during which no journal is rewritten; one takes milliseconds."""
SETTINGS_FILE = "settings.toml"
_SKIPPED_DIRS = frozenset({"postgres", "logs", JOURNALS, "socket", "records"})
"""`records`: a validator's, of its matches. Thousands of public files; the database has a record of each match."""
_SKIPPED = frozenset({"lock", "ready", "ready.json", "gateway.port", JOURNAL_FILE})
_SKIPPED_SUFFIXES = (".log", ".log.1", ".tmp", ".fresh", ".wal")
"""`.wal`: what a validator signed. A copy of it is older than the truth, and its key must not sign by it."""
RETRY_S = 0.02


async def write_backup(
    target: BinaryIO, *, dsn: str, data: Path, config: Path | None, secret: str | None, packed: bool, clock: Clock
) -> Manifest:
    """Write everything into one tar. `secret`: for a data directory without a secret file. Raises StartupError."""
    with tempfile.TemporaryDirectory(prefix=".sparewatt-backup-", dir=_staging_parent(target)) as folder:
        staging = Path(folder)
        async with _consistent_snapshot(dsn, data, staging) as snapshot:
            made_at = clock.unix_s()
            shape = await _copy_tables(snapshot, staging)
        await asyncio.to_thread(_copy_files, data, staging, config, secret)
        manifest = Manifest(FORMAT, __version__, made_at, shape, await asyncio.to_thread(_members, staging))
        await asyncio.to_thread(write_archive, target, manifest, staging, packed=packed)
    return manifest


def _members(staging: Path) -> list[Member]:
    names = sorted(path.relative_to(staging).as_posix() for path in staging.rglob("*") if path.is_file())
    return [member_of(name, staging / name) for name in names]


def _staging_parent(target: BinaryIO) -> Path | None:
    """The target's directory, whose disk needs the space anyway; for a pipe the system's default."""
    name = getattr(target, "name", None)
    return Path(name).parent if isinstance(name, str) and name.startswith("/") else None


@asynccontextmanager
async def _consistent_snapshot(dsn: str, data: Path, staging: Path) -> AsyncIterator[DatabaseSnapshot]:
    """A snapshot, with the journals of the same moment copied to `staging`."""
    for _ in range(BACKUP_TRIES_MAX):
        with ExitStack() as stack:
            journals = {path: stack.enter_context(path.open("rb")) for path in _journals(data)}
            async with open_snapshot(dsn) as snapshot:
                if await asyncio.to_thread(_take_journals, journals, data, staging):
                    yield snapshot
                    return
        await asyncio.sleep(RETRY_S)
    raise StartupError("The gateway's journals change faster than they can be read. Try again in a minute.")


def _journals(data: Path) -> list[Path]:
    """Of every gateway in this directory, also one level down, where `sparewatt up` has it."""
    return sorted(path for root in (data, data / "gateway") for path in root.glob(f"{JOURNALS}/*/{JOURNAL_FILE}"))


def _take_journals(journals: Mapping[Path, BinaryIO], data: Path, staging: Path) -> bool:
    """False if one was rewritten or removed since it was opened. An open file's inode number is not reused."""
    shutil.rmtree(staging / FILES, ignore_errors=True)  # of the previous attempt
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
    files = list(_files_to_copy(data))
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


def _files_to_copy(data: Path) -> Iterator[Path]:
    """Keys, secret and what was deployed: no database, no logs, no runtime files."""
    for folder, subfolders, names in os.walk(data):
        subfolders[:] = sorted(name for name in subfolders if name not in _SKIPPED_DIRS and not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            is_skipped = name in _SKIPPED or name.startswith(".") or name.endswith(_SKIPPED_SUFFIXES)
            if not is_skipped and path.is_file() and not path.is_symlink():
                yield path


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise StartupError(f"Cannot read {source}: {error.strerror}.") from None


async def restore_backup(source: BinaryIO, *, dsn: str, data: Path) -> tuple[Manifest, AuditResult]:
    """The manifest, and an audit of the restored books. Raises StartupError; then nothing was changed."""
    make_private_dir(data)
    with tempfile.TemporaryDirectory(prefix=".sparewatt-restore-", dir=data) as folder:
        staging = Path(folder)
        manifest = await asyncio.to_thread(read_archive, source, staging)
        refuse_taken(manifest, data)
        written: list[Path] = []

        def write_files() -> None:
            """Called just before the database is committed."""
            for name in manifest.files():
                target = data / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                written.append(target)
                write_private(target, (staging / FILES / name).read_bytes())

        def remove_files() -> None:
            for path in written:
                path.unlink(missing_ok=True)

        with on_failure(remove_files):
            await restore_snapshot(dsn, manifest.shape, lambda name: staging / TABLES / name, write_files)
    database = await Database.connect(dsn)  # migrates the schema to this release
    try:
        return manifest, await database.ledger.audit()
    finally:
        await database.close()


def refuse_taken(manifest: Manifest, data: Path) -> None:
    for name in manifest.files():
        if (data / name).exists():
            raise StartupError(f"{data / name} is there already. Restore into a new directory.")


# the archive


class Member(msgspec.Struct, frozen=True):
    name: str
    n_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    format: int
    program: str
    """The release that made it."""
    made_at_unix_s: float
    shape: SnapshotSchema
    members: list[Member]

    def files(self) -> list[str]:
        """Paths in the data directory."""
        return [m.name.partition("/")[2] for m in self.members if m.name.startswith(f"{FILES}/")]


def member_of(name: str, path: Path) -> Member:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_COPY_BYTES):
            digest.update(piece)
            size += len(piece)
    return Member(name, size, digest.hexdigest())


def write_archive(target: BinaryIO, manifest: Manifest, staging: Path, *, packed: bool) -> None:
    """`staging`: contains the members under their names."""
    with tarfile.open(fileobj=target, mode="w|gz" if packed else "w|") as archive:
        text = msgspec.json.format(msgspec.json.encode(manifest))
        _add(archive, MANIFEST, io.BytesIO(text), len(text), manifest)
        for member in manifest.members:
            with (staging / member.name).open("rb") as file:
                _add(archive, member.name, file, member.n_bytes, manifest)


def _add(archive: tarfile.TarFile, name: str, file: BinaryIO, n_bytes: int, manifest: Manifest) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = n_bytes, 0o600, int(manifest.made_at_unix_s)
    archive.addfile(info, file)


def read_archive(source: BinaryIO, staging: Path) -> Manifest:
    """Unpack every listed member into `staging` and check it. Raises StartupError for anything but a whole backup."""
    try:
        with tarfile.open(fileobj=source, mode="r|*") as archive:
            return _unpack(archive, staging)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise StartupError(f"This is no whole backup: {error}.") from None


def _unpack(archive: tarfile.TarFile, staging: Path) -> Manifest:
    entries = iter(archive)
    manifest = _read_manifest(archive, entries)
    wanted = {member.name: member for member in manifest.members}
    for entry in entries:
        member = wanted.pop(entry.name, None)
        content = archive.extractfile(entry) if entry.isreg() else None
        if member is None or content is None or entry.size != member.n_bytes:
            raise StartupError(f"The backup holds {entry.name[:100]!r}, which its manifest does not list.")
        target = staging / _safe(member.name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _private(target) as file:
            while piece := content.read(_COPY_BYTES):
                file.write(piece)
        if member_of(member.name, target) != member:
            raise StartupError(f"{member.name} in the backup is damaged.")
    if wanted:
        raise StartupError(f"The backup is cut short: {min(wanted)} is missing.")
    return manifest


def _read_manifest(archive: tarfile.TarFile, entries: Iterator[tarfile.TarInfo]) -> Manifest:
    first = next(entries, None)
    content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if first is None or content is None or first.size > BACKUP_MANIFEST_BYTES_MAX:
        raise StartupError("This is no backup: it does not begin with a manifest.")
    try:
        manifest = msgspec.json.decode(content.read(), type=Manifest)
    except msgspec.DecodeError as error:
        raise StartupError(f"The backup's manifest cannot be read: {error}.") from None
    if manifest.format != FORMAT:
        raise StartupError(f"The backup is of format {manifest.format}, this release reads {FORMAT}.")
    return manifest


def _safe(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.parts[:1] not in {(TABLES,), (FILES,)}:
        raise StartupError(f"The backup names a file outside of it: {name[:100]!r}.")
    return name


@contextmanager
def _private(path: Path) -> Iterator[BinaryIO]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        yield file


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A private file, written atomically and never over another. Raises StartupError."""
    if path.exists():
        raise StartupError(f"{path} is there already. Choose another name: a backup is never written over a file.")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _private(fresh) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, path)
    except OSError as error:
        raise StartupError(f"Cannot write {path}: {error.strerror}.") from None
    finally:
        fresh.unlink(missing_ok=True)
