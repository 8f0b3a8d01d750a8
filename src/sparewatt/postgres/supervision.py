"""An embedded Postgres that is started again when it dies, for as long as somebody needs it.

Its folder is locked: of two processes that want it, the second is told so. Who only wants to look at a database uses
`reachable_postgres`, which takes the one that runs, or runs one for the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Backoff, sleep
from sparewatt.machine.data_dir import DataDir
from sparewatt.postgres.paths import read_pid_file
from sparewatt.postgres.server import EmbeddedPostgres

Notify = Callable[[str], None]


@asynccontextmanager
async def supervised_postgres(home: Path, *, clock: Clock, rng: Rng, tell: Notify) -> AsyncIterator[str]:
    """The connection string of a server that is kept running. Raises StartupError."""
    tell("Starting Postgres …")
    with DataDir(home) as folder:
        async with EmbeddedPostgres(folder.path) as server:
            keeper = asyncio.create_task(_restart_on_exit(server, clock=clock, rng=rng, tell=tell))
            try:
                yield server.dsn
            finally:
                keeper.cancel()
                await asyncio.wait([keeper])


async def _restart_on_exit(server: EmbeddedPostgres, *, clock: Clock, rng: Rng, tell: Notify) -> None:
    backoff = Backoff(rng)
    while True:
        started_s = clock.now_s()
        status = await server.wait()
        delay_s = backoff.next_delay_s(uptime_s=clock.now_s() - started_s)
        tell(f"Postgres ended with status {status}; starting it again in {delay_s:.1f} s.")
        await sleep(delay_s, clock=clock)
        try:
            await server.start()
        except StartupError as error:
            tell(error.message)


@asynccontextmanager
async def reachable_postgres(home: Path, *, may_make: bool = False) -> AsyncIterator[str]:
    """The server of `home`: the one that runs, else one for the moment. Raises StartupError if there is none.

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
    """By its lock, which ends with its holder; the server's own file may be a dead one's."""
    pid_file = read_pid_file(home / "data") if (home / "data").exists() else None
    if pid_file is None or not pid_file.is_ready:
        return False
    try:
        DataDir(home).close()
    except StartupError:
        return True
    return False
