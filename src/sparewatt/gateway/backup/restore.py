"""A network from its backup, into an empty database and a directory that has none of its files. Never over anything.

The journals of gateways that ran in the moment of the backup come along; the first gateway that starts here settles
them, as it would after a crash.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import BinaryIO

from sparewatt.core.errors import StartupError
from sparewatt.gateway.backup.archive import FILES, TABLES, Manifest, read_archive
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.store.database import Database
from sparewatt.store.ledger import AuditResult
from sparewatt.store.snapshot import restore_snapshot


async def restore_backup(source: BinaryIO, *, dsn: str, data: Path) -> tuple[Manifest, AuditResult]:
    """What was restored, and whether its books are in order. Raises StartupError, having changed nothing."""
    make_private_dir(data)
    with tempfile.TemporaryDirectory(prefix=".sparewatt-restore-", dir=data) as folder:
        staging = Path(folder)
        manifest = await asyncio.to_thread(read_archive, source, staging)
        refuse_taken(manifest, data)
        placed = _Placing(manifest, staging, data)
        try:
            await restore_snapshot(dsn, manifest.shape, lambda name: staging / TABLES / name, placed.place)
        except BaseException:
            placed.take_back()
            raise
    database = await Database.connect(dsn)  # and with it the schema of this release
    try:
        return manifest, await database.ledger.audit()
    finally:
        await database.close()


def refuse_taken(manifest: Manifest, data: Path) -> None:
    for name in manifest.files():
        if (data / name).exists():
            raise StartupError(f"{data / name} is there already. Restore into a new directory.")


class _Placing:
    """The files, put in place just before the database is committed."""

    def __init__(self, manifest: Manifest, staging: Path, data: Path) -> None:
        self._names = manifest.files()
        self._staging = staging / FILES
        self._data = data
        self._done: list[Path] = []

    def place(self) -> None:
        for name in self._names:
            target = self._data / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._done.append(target)
            write_private(target, (self._staging / name).read_bytes())

    def take_back(self) -> None:
        for path in self._done:
            path.unlink(missing_ok=True)
