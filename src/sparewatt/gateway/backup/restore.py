"""Restoring a network from its backup, into an empty database and a directory without its files. Never over anything.

Journals of gateways that ran at the moment of the backup are restored too; the first gateway that starts here settles
them, as after a crash.
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

        try:
            await restore_snapshot(dsn, manifest.shape, lambda name: staging / TABLES / name, write_files)
        except BaseException:
            for path in written:
                path.unlink(missing_ok=True)
            raise
    database = await Database.connect(dsn)  # migrates the schema to this release
    try:
        return manifest, await database.ledger.audit()
    finally:
        await database.close()


def refuse_taken(manifest: Manifest, data: Path) -> None:
    for name in manifest.files():
        if (data / name).exists():
            raise StartupError(f"{data / name} is there already. Restore into a new directory.")
