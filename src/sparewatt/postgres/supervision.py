"""An embedded Postgres that is restarted with back-off when it dies, and short-lived access to one.

The folder is locked while a server runs in it: a second process gets StartupError. A command that only reads a database
uses `reachable_postgres`, which connects to the running server or starts one for as long as the command takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Notify, restarting
from sparewatt.machine.data_dir import DataDir
from sparewatt.postgres.paths import read_pid_file
from sparewatt.postgres.server import EmbeddedPostgres


@asynccontextmanager
async def supervised_postgres(home: Path, *, clock: Clock, rng: Rng, notify: Notify) -> AsyncIterator[str]:
    """The connection string of a server that is restarted when it ends. Raises StartupError."""
    notify("Starting Postgres …")
    with DataDir(home) as folder:
        async with (
            EmbeddedPostgres(folder.path) as server,
            restarting(server, name="Postgres", clock=clock, rng=rng, notify=notify),
        ):
            yield server.dsn


@asynccontextmanager
async def reachable_postgres(home: Path, *, may_make: bool = False) -> AsyncIterator[str]:
    """The connection string of `home`'s server, started if it does not run. Raises StartupError if there is none.

    `may_make`: a folder without a database gets one.
    """
    server = EmbeddedPostgres(home)
    if _is_running(home):
        yield server.dsn
        return
    if not may_make and not (home / "data").exists():
        raise StartupError(f"There is no database in {home}. Give another --data, or --database-url.")
    with DataDir(home):
        async with server:
            yield server.dsn


def _is_running(home: Path) -> bool:
    """By the folder's lock, which ends with its holder; the server's pid file may be left over from a killed one."""
    pid_file = read_pid_file(home / "data") if (home / "data").exists() else None
    if pid_file is None or not pid_file.is_ready:
        return False
    try:
        DataDir(home).close()
    except StartupError:
        return True
    return False
