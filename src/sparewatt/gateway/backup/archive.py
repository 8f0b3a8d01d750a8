"""The file format of a backup: a tar with a manifest first, then tables, then files, each with its hash.

It contains the network's secret, so only its owner can read it. Only members that the manifest lists are unpacked, and
a path that leads out of the directory is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.core.limits import MIB
from sparewatt.store.snapshot import SnapshotSchema

FORMAT = 1
MANIFEST = "manifest.json"
TABLES, FILES = "tables", "files"
BACKUP_MANIFEST_BYTES_MAX = 16 * MIB
"""A data directory of ten thousand files needs one."""
_COPY_BYTES = 1 * MIB


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
