"""The embedded PostgreSQL as a real server: first start, restart, and every kind of sudden death."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.postgres import server as postgres_module
from sparewatt.postgres.binaries import PostgresBinaries, find_binaries
from sparewatt.postgres.os_account import os_accounts_for_root
from sparewatt.postgres.paths import choose_socket_dir
from sparewatt.postgres.server import EmbeddedPostgres

CEILING_S = 30.0

SERVE = """
import asyncio, sys
from pathlib import Path
from sparewatt.postgres.os_account import os_accounts_for_root
from sparewatt.postgres.binaries import PostgresBinaries
from sparewatt.postgres.server import EmbeddedPostgres

async def serve(home, loop_name, account_index, bin_dir):
    binaries = PostgresBinaries(Path(bin_dir)) if bin_dir else None
    account = list(os_accounts_for_root())[int(account_index)] if account_index else None
    server = EmbeddedPostgres(Path(home), binaries=binaries, account=account)
    await server.start()
    print(server.pid, flush=True)
    await server.wait()

run = __import__(sys.argv[2]).run
run(serve(*sys.argv[1:]))
"""


def poll(condition: Callable[[], bool], *, what: str) -> None:
    deadline_s = time.monotonic() + CEILING_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {CEILING_S} s: {what}"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Running, not merely waiting to be buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def pids_in(directory: Path) -> list[int]:
    """All processes that stand in `directory`: a server and its workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == directory:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@contextmanager
def serving_process(
    home: Path, *, loop: str = "asyncio", account: str = "", bin_dir: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that runs a server on `home`; killed at the end."""
    argv = [sys.executable, "-c", SERVE, str(home), loop, account, bin_dir]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def server_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


async def insert(server: EmbeddedPostgres, n_rows: int) -> None:
    connection = await asyncpg.connect(server.dsn)
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS kept (n bigint)")
        for n in range(n_rows):
            await connection.execute("INSERT INTO kept VALUES ($1)", n)
    finally:
        await connection.close()


async def count(server: EmbeddedPostgres) -> int:
    connection = await asyncpg.connect(server.dsn)
    try:
        n_rows = await connection.fetchval("SELECT count(*) FROM kept")
    finally:
        await connection.close()
    assert isinstance(n_rows, int)
    return n_rows


async def setting(server: EmbeddedPostgres, name: str) -> str:
    connection = await asyncpg.connect(server.dsn)
    try:
        return str(await connection.fetchval(f"SHOW {name}"))
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a server that was started and stopped."""

    async def start_and_stop(home: Path) -> None:
        async with EmbeddedPostgres(home):
            """That is all."""

    home = tmp_path_factory.mktemp("cluster") / "pg"
    asyncio.run(start_and_stop(home))
    return home / "data"


@pytest.fixture
def made(cluster: Path, tmp_path: Path) -> Path:
    """A home with such a directory, for tests that are not about the making of it."""
    shutil.copytree(cluster, tmp_path / "pg" / "data")
    return tmp_path / "pg"


async def test_first_start_makes_a_private_cluster_with_our_settings(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        expected = {"listen_addresses": "", "shared_buffers": "32MB", "max_connections": "50"}
        expected |= {"fsync": "on", "synchronous_commit": "on", "server_encoding": "UTF8"}
        assert {name: await setting(server, name) for name in expected} == expected
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "pg").iterdir()}
        assert modes == {"data": 0o700, "socket": 0o700, "postgres.log": 0o600}


async def test_a_restart_keeps_rows(made: Path) -> None:
    server = EmbeddedPostgres(made)
    await server.start()
    await insert(server, 5)
    await server.stop()
    assert server.pid is None
    async with server:
        assert await count(server) == 5


async def test_a_second_start_of_a_running_server_is_refused(made: Path) -> None:
    async with EmbeddedPostgres(made) as server:
        with pytest.raises(StartupError, match="already runs"):
            await server.start()
        await insert(server, 1)


async def test_stop_without_start_does_nothing_and_wait_refuses(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "pg")
    await server.stop()
    with pytest.raises(StartupError, match="never started"):
        await server.wait()


async def test_stop_ends_open_connections_and_leaves_no_process(made: Path) -> None:
    server = EmbeddedPostgres(made)
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    asleep = asyncio.create_task(connection.execute("SELECT pg_sleep(60)"))
    await server.stop()
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await asleep
    connection.terminate()
    assert await server.wait() == 0
    assert pids_in(made / "data") == []


async def test_a_killed_postmaster_is_noticed_and_the_next_start_has_all_rows(made: Path) -> None:
    server = EmbeddedPostgres(made)
    await server.start()
    await insert(server, 50)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(CEILING_S):
        assert await server.wait() == -signal.SIGKILL
    async with server:
        assert await count(server) == 50


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_postgres_is_gone_when_its_parent_is_killed(tmp_path: Path, loop: str) -> None:
    home = tmp_path / "pg"
    with serving_process(home, loop=loop) as parent:
        pid = server_pid(parent)
        assert pid in pids_in(home / "data")
        os.kill(parent.pid, signal.SIGKILL)
        poll(lambda: not is_running(pid) and not pids_in(home / "data"), what="postgres is gone")
    async with EmbeddedPostgres(home) as server:
        await insert(server, 1)


async def test_a_start_right_after_the_parent_was_killed_waits_for_the_old_server_to_go(tmp_path: Path) -> None:
    home = tmp_path / "pg"
    with serving_process(home) as parent:
        pid = server_pid(parent)
        os.kill(parent.pid, signal.SIGKILL)
        async with EmbeddedPostgres(home) as server:
            assert server.pid != pid
            await insert(server, 1)


async def test_a_server_held_by_somebody_else_is_a_startup_error_and_stays_unharmed(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "PREDECESSOR_S", 0.5)
    async with EmbeddedPostgres(made) as holder:
        with pytest.raises(StartupError, match=r"postmaster\.pid"):
            await EmbeddedPostgres(made).start()
        await insert(holder, 1)


async def test_two_servers_run_at_once(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path / "one") as one, EmbeddedPostgres(tmp_path / "two") as two:
        await asyncio.gather(insert(one, 1), insert(two, 2))
        assert (await count(one), await count(two)) == (1, 2)


@pytest.mark.parametrize(
    "name",
    ['a path with spaces, quo\'ted, "and" listed é%20#?&=', "x" * 120],
    ids=["odd", "long"],
)
async def test_any_path_will_do(tmp_path: Path, name: str) -> None:
    home = tmp_path / name / "pg"
    try:
        async with EmbeddedPostgres(home) as server:
            await insert(server, 3)
        async with EmbeddedPostgres(home) as server:
            assert await count(server) == 3
    finally:
        socket_dir = choose_socket_dir(home)
        if not socket_dir.is_relative_to(home):
            socket_dir.rmdir()


async def test_a_foreign_environment_does_not_steer_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = {"PGPORT": "6000", "PGDATA": "/nowhere", "PGHOST": "db.invalid", "PGUSER": "x", "PGDATABASE": "y"}
    for variable, value in {**foreign, "LANG": "de_DE.UTF-8"}.items():
        monkeypatch.setenv(variable, value)
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        await insert(server, 1)


def make_hanging_initdb(bin_dir: Path) -> None:
    """Programs of which initdb does its work and then never ends."""
    real = find_binaries()
    bin_dir.mkdir()
    (bin_dir / "postgres").symlink_to(real.postgres)
    script = '#!/bin/sh\ncase "$1" in --show) exit 0;; esac\n'
    (bin_dir / "initdb").write_text(f"{script}'{real.initdb}' \"$@\"\necho done-but-hanging\nexec sleep 3600\n")
    (bin_dir / "initdb").chmod(0o755)


async def test_an_interrupted_initdb_leaves_nothing_half_made(tmp_path: Path) -> None:
    home, log = tmp_path / "pg", tmp_path / "pg" / "postgres.log"
    make_hanging_initdb(tmp_path / "bin")
    with serving_process(home, bin_dir=str(tmp_path / "bin")) as parent:
        poll(lambda: log.exists() and "done-but-hanging" in log.read_text(), what="initdb hangs")
        os.kill(parent.pid, signal.SIGKILL)
    assert not (home / "data").exists()
    assert len(list(home.glob("data.initdb-*"))) == 1
    async with EmbeddedPostgres(home) as server:
        await insert(server, 1)
    assert list(home.glob("data.initdb-*")) == []


async def test_a_cancelled_first_start_ends_initdb(tmp_path: Path) -> None:
    make_hanging_initdb(tmp_path / "bin")
    server = EmbeddedPostgres(tmp_path / "pg", binaries=PostgresBinaries(tmp_path / "bin"))
    start = asyncio.create_task(server.start())
    log = tmp_path / "pg" / "postgres.log"
    await asyncio.to_thread(poll, lambda: log.exists() and "done-but-hanging" in log.read_text(), what="initdb hangs")
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not (tmp_path / "pg" / "data").exists()
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        await insert(server, 1)


async def test_data_of_another_version_is_refused_in_words(made: Path) -> None:
    (made / "data" / "PG_VERSION").write_text("11\n")
    with pytest.raises(StartupError, match=r"made by PostgreSQL 11, but .* is version"):
        await EmbeddedPostgres(made).start()


async def test_a_foreign_directory_in_place_of_the_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pg" / "data").mkdir(parents=True)
    with pytest.raises(StartupError, match="not a PostgreSQL data directory"):
        await EmbeddedPostgres(tmp_path / "pg").start()


async def test_a_failed_start_shows_the_end_of_the_log(made: Path) -> None:
    (made / "data" / "postgresql.conf").write_text("no_such_setting = 1\n")
    server = EmbeddedPostgres(made)
    with pytest.raises(StartupError, match="no_such_setting"):
        await server.start()
    assert server.pid is None


async def test_a_failed_initdb_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("initdb", "postgres"):
        (tmp_path / "bin" / program).write_text(
            '#!/bin/sh\ncase "$1" in --show) exit 0;; esac\necho disk full; exit 1\n'
        )
        (tmp_path / "bin" / program).chmod(0o755)
    with pytest.raises(StartupError, match="disk full"):
        await EmbeddedPostgres(tmp_path / "pg", binaries=PostgresBinaries(tmp_path / "bin")).start()
    assert not (tmp_path / "pg" / "data").exists()


async def test_a_pid_file_whose_pid_is_now_a_stranger_does_not_prevent_the_start(made: Path) -> None:
    async with EmbeddedPostgres(made) as server:
        pid_file = made / "data" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        await insert(server, 1)
    stranger = await asyncio.create_subprocess_exec("sleep", "3600")
    pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
    pid_file.chmod(0o600)
    try:
        async with EmbeddedPostgres(made) as server:
            assert await count(server) == 1
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="a normal user runs the server as itself")
async def test_as_root_every_account_serves_the_same_data_in_turn(tmp_path: Path) -> None:
    accounts = [*os_accounts_for_root(), *os_accounts_for_root()]
    assert len(accounts) == 4
    for n_before, account in enumerate(accounts):
        async with EmbeddedPostgres(tmp_path / "pg", account=account) as server:
            await insert(server, 1)
            assert await count(server) == n_before + 1
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)  # leaves its socket and pid file to the next account
            await server.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="a normal user runs the server as itself")
@pytest.mark.parametrize("account", ["0", "1"])
async def test_as_root_the_server_dies_with_its_parent_under_every_account(tmp_path: Path, account: str) -> None:
    with serving_process(tmp_path / "pg", account=account) as parent:
        pid = server_pid(parent)
        os.kill(parent.pid, signal.SIGKILL)
        poll(lambda: not is_running(pid), what="postgres is gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_normal_user_runs_it_as_itself(tmp_path: Path) -> None:
    """The other user keeps root's view of files, as the virtual environment may be private to root."""
    _, nobody = os_accounts_for_root()
    os.chown(tmp_path, nobody.owner_uid, -1)
    code = SERVE.replace("await server.wait()", "await server.stop()")
    argv = [*nobody.prefix, sys.executable, "-c", code, str(tmp_path / "pg"), "asyncio", "", ""]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=CEILING_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "pg" / "data").stat().st_uid == nobody.owner_uid
