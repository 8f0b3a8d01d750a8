"""An embedded PostgreSQL: initialised on first use, run as a foreground child, restarted when it dies.

It can be reached only through a socket in a private directory, and ends with this process. If the server or this
process is killed at any moment, the next start recovers the data (write-ahead log). Schema and queries are in store/.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import asyncpg

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import MIB
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Notify, restarting
from sparewatt.machine.data_dir import DataDir, fsync_dir, make_private_dir
from sparewatt.machine.disk import free_bytes
from sparewatt.machine.spawn import exits_within, kill_group, open_log, read_tail, spawn, stop_process
from sparewatt.postgres.binaries import PostgresBinaries, find_binaries
from sparewatt.postgres.os_account import OsAccount, choose_os_account
from sparewatt.postgres.paths import PORT, choose_socket_dir, make_socket_dir, read_pid_file, remove_stale_pid_file

NAME = "sparewatt"
"""The database and its only role."""

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "shared_buffers": "32MB",
    "max_connections": "50",
    "fsync": "on",
    "synchronous_commit": "on",
    "log_checkpoints": "off",
}

INITDB_S = 120.0
"""Half a second on an idle disk; an SD card may need a minute."""

READY_S = 120.0
"""After a crash the server first replays up to 1 GB of its write-ahead log."""

PREDECESSOR_S = 20.0
"""How long the processes of a killed server may take to release its shared memory."""

DISK_BYTES_MIN = 32 * MIB
"""A segment of its write-ahead log takes 16 MiB, and it makes the next one ahead of time."""

CONNECT_S = 10.0
POLL_S = 0.01
RETRY_S = 0.2

STOP_STEPS = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0))
"""Fast shutdown writes a checkpoint; immediate shutdown leaves recovery to the next start. SIGKILL comes after."""

_STAGING_PREFIX = "data.initdb-"
_STILL_IN_USE = (
    "pre-existing shared memory block",
    'lock file "postmaster.pid" already exists',
    "Is another postmaster",
)


class EmbeddedPostgres:
    """One server in one directory. The caller locks `home`: two processes must not use it at once."""

    def __init__(
        self, home: Path, *, binaries: PostgresBinaries | None = None, account: OsAccount | None = None
    ) -> None:
        self._home = home.resolve()
        self._log_path = self._home / "postgres.log"
        self._binaries = binaries
        self._account = account
        self._process: Process | None = None

    @property
    def dsn(self) -> str:
        """The connection string, for asyncpg and libpq."""
        return self._dsn_of(NAME)

    @property
    def pid(self) -> int | None:
        """While it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the server, in a new directory as well as after a crash. StartupError says what to do."""
        if self.pid is not None:
            raise StartupError(f"PostgreSQL already runs as process {self.pid}.")
        home = make_private_dir(self._home)
        binaries = self._binaries or find_binaries()
        account = self._account or await choose_os_account(binaries, home=home)
        socket_dir = make_socket_dir(choose_socket_dir(home))
        for leftover in socket_dir.iterdir():  # of a killed server that may have run under another account
            account.chown_tree(leftover)
        launcher = _Launcher(home, home / "data", self._log_path, binaries, account, socket_dir)
        await launcher.prepare_cluster()
        self._process = await launcher.launch()
        await self._create_database_or_stop()

    async def stop(self) -> None:
        """Shut down cleanly; harder if that takes too long. Does nothing if the server does not run."""
        if self._process is not None and self._process.returncode is None:
            await stop_process(self._process, steps=STOP_STEPS)

    async def wait(self) -> int:
        """Wait until the server has ended, and return its exit status."""
        if self._process is None:
            raise StartupError("PostgreSQL was never started.")
        return await self._process.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    def _dsn_of(self, database: str) -> str:
        socket_dir = choose_socket_dir(self._home)
        return f"postgresql:///{database}?host={quote(str(socket_dir), safe='/')}&port={PORT}&user={NAME}"

    async def _create_database_or_stop(self) -> None:
        created = False
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._create_database()
            created = True
        except (OSError, asyncpg.PostgresError) as error:
            tail = read_tail(self._log_path)
            raise StartupError(
                f"PostgreSQL runs but does not answer: {error!r}. The end of its log:\n{tail}"
            ) from error
        finally:
            if not created:
                await self.stop()

    async def _create_database(self) -> None:
        connection = await self._connect_to_postgres()
        try:
            if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", NAME):
                await connection.execute(f'CREATE DATABASE "{NAME}"')
        finally:
            await connection.close()

    async def _connect_to_postgres(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the database that every server has; retries while the server starts."""
        while True:
            try:
                return await asyncpg.connect(self._dsn_of("postgres"))
            except (ConnectionError, FileNotFoundError, asyncpg.CannotConnectNowError):
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def supervised_postgres(home: Path, *, clock: Clock, rng: Rng, notify: Notify) -> AsyncIterator[str]:
    """The connection string of a server that is restarted with back-off when it ends. Raises StartupError.

    The folder is locked meanwhile: a second process gets StartupError.
    """
    notify("Starting Postgres …")
    with DataDir(home) as folder:
        async with (
            EmbeddedPostgres(folder.path) as server,
            restarting(server, name="Postgres", clock=clock, rng=rng, notify=notify),
        ):
            yield server.dsn


@asynccontextmanager
async def reachable_postgres(home: Path, *, may_make: bool = False) -> AsyncIterator[str]:
    """For a command: the connection string of `home`'s server, started for the time of the block if it does not run.

    `may_make`: a folder without a database gets one; otherwise StartupError is raised for it.
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


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The steps from a directory to a server that is ready."""

    home: Path
    data: Path
    log_path: Path
    binaries: PostgresBinaries
    account: OsAccount
    socket_dir: Path

    async def prepare_cluster(self) -> None:
        """Ensure a complete data directory of the right version. Raises StartupError."""
        for leftover in self.home.glob(f"{_STAGING_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)  # a failure is retried at the next start
        if self.data.exists():
            await self._check_version()
            self.account.chown_tree(self.data)
        else:
            await self._create_cluster()

    async def launch(self) -> Process:
        """Start the server; retries while a server killed a moment ago still uses the directory."""
        deadline_s = asyncio.get_running_loop().time() + PREDECESSOR_S
        while True:
            remove_stale_pid_file(self.data)
            log_bytes = self._log_size()
            process = await self._spawn(self._server_argv(), death_signal=signal.SIGINT)
            if await self._becomes_ready(process):
                return process
            tail = read_tail(self.log_path, since=log_bytes)
            may_retry = asyncio.get_running_loop().time() < deadline_s
            if not (may_retry and any(text in tail for text in _STILL_IN_USE)):
                raise self._start_error(tail)
            await asyncio.sleep(RETRY_S)

    def _start_error(self, tail: str) -> StartupError:
        """On a full disk the server cannot write its log either, so the disk is asked."""
        if free_bytes(self.home) < DISK_BYTES_MIN:
            return StartupError(
                f"The disk is full: PostgreSQL cannot write in {self.data}. Make room there; "
                "a network that runs starts it again by itself."
            )
        return StartupError(f"PostgreSQL does not start. The end of {self.log_path}:\n{tail}")

    async def _create_cluster(self) -> None:
        """Initialise it under another name and rename it, so that `data` is complete or absent."""
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=self.home))
        self.account.chown_tree(staging)
        options = ("--locale=C", "--encoding=UTF8", f"--username={NAME}", "--auth=trust")
        log_bytes = self._log_size()
        process = await self._spawn((self.binaries.initdb, *options, "-D", str(staging)), death_signal=signal.SIGKILL)
        try:
            await exits_within(process, INITDB_S)
        finally:
            kill_group(process)
        if process.returncode != 0:
            tail = read_tail(self.log_path, since=log_bytes)
            raise StartupError(f"PostgreSQL cannot make its data directory. The end of {self.log_path}:\n{tail}")
        await asyncio.to_thread(staging.rename, self.data)
        fsync_dir(self.home)

    async def _check_version(self) -> None:
        try:
            made_by = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise StartupError(f"{self.data} is not a PostgreSQL data directory. Move it away to start over.") from None
        installed = await _major_version(self.binaries)
        if made_by != installed:
            raise StartupError(
                f"The data in {self.data} was made by PostgreSQL {made_by}, but {self.binaries.postgres} is "
                f"version {installed}. Install version {made_by}, or move the data with pg_dump, or set DATABASE_URL."
            )

    async def _becomes_ready(self, process: Process) -> bool:
        """Wait for 'ready' in the server's pid file. False when it ended; StartupError when it hangs."""
        ready = False
        try:
            async with asyncio.timeout(READY_S):
                while process.returncode is None and not ready:
                    await asyncio.sleep(POLL_S)
                    pid_file = read_pid_file(self.data)
                    ready = pid_file is not None and pid_file.is_ready and pid_file.pid == process.pid
        except TimeoutError:
            tail = read_tail(self.log_path)
            raise StartupError(f"PostgreSQL is not ready after {READY_S:.0f} s. The end of its log:\n{tail}") from None
        finally:
            if not ready:
                await stop_process(process, steps=STOP_STEPS[1:])
        return ready

    def _server_argv(self) -> tuple[str, ...]:
        settings = {**SETTINGS, "unix_socket_directories": str(self.socket_dir)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return (self.binaries.postgres, "-D", str(self.data), *options)

    async def _spawn(self, argv: tuple[str, ...], *, death_signal: signal.Signals) -> Process:
        argv = self.account.wrap(argv, death_signal=death_signal)
        return await spawn(argv, env=_clean_env(), log_path=self.log_path, death_signal=death_signal)

    def _log_size(self) -> int:
        with open_log(self.log_path) as log:
            return os.fstat(log.fileno()).st_size


def _clean_env() -> dict[str, str]:
    """Our environment without PostgreSQL's variables, and with messages in English, which _STILL_IN_USE matches."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**others, "LC_ALL": "C"}


async def _major_version(binaries: PostgresBinaries) -> str:
    """`postgres (PostgreSQL) 18.6` is version 18."""
    process = await asyncio.create_subprocess_exec(binaries.postgres, "--version", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    match = re.search(r"\) (\d+)", output.decode(errors="replace"))
    return match[1] if match else "unknown"
