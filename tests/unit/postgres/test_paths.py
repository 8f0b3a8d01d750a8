"""Where the socket lies, who may have made its directory, and what a pid file means."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.postgres.paths import PidFile, choose_socket_dir, make_socket_dir, read_pid_file, remove_stale_pid_file

NO_SUCH_PID = 2**22 + 1  # above Linux's highest


def test_a_short_plain_path_keeps_its_socket_inside() -> None:
    assert choose_socket_dir(Path("/data/pg")) == Path("/data/pg/socket")
    assert choose_socket_dir(Path("/data/my own pg")) == Path("/data/my own pg/socket")


@pytest.mark.parametrize("home", ["/" + "x" * 90, "/data/a,b", '/data/a"b', "/data/a%20b", "/data/ü", "/data/a\nb"])
def test_a_long_or_difficult_path_gets_a_short_stand_in(home: str) -> None:
    chosen = choose_socket_dir(Path(home), temporary_root=Path("/var/tmp"))  # noqa: S108  only a name here
    assert chosen.parent == Path("/var/tmp")  # noqa: S108
    assert chosen.name.startswith(f"sparewatt-{os.geteuid()}-")
    assert len(os.fsencode(chosen / ".s.PGSQL.5432")) < 100


def test_the_longest_path_that_fits_is_used_and_one_byte_more_is_not() -> None:
    fixed = len("/socket/.s.PGSQL.5432")
    longest = Path("/" + "x" * (99 - fixed - 1))
    assert choose_socket_dir(longest) == longest / "socket"
    assert choose_socket_dir(Path(f"{longest}x")).name.startswith("sparewatt-")


def test_stand_ins_are_stable_and_differ_by_directory() -> None:
    one, other = Path("/" + "x" * 90), Path("/" + "y" * 90)
    assert choose_socket_dir(one) == choose_socket_dir(one)
    assert choose_socket_dir(one) != choose_socket_dir(other)


def test_a_temporary_directory_that_is_too_long_itself_is_not_used() -> None:
    chosen = choose_socket_dir(Path("/" + "x" * 90), temporary_root=Path("/" + "t" * 90))
    assert len(os.fsencode(chosen / ".s.PGSQL.5432")) < 100


def test_a_socket_directory_is_private_and_can_be_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        made = make_socket_dir(tmp_path / "socket")
        assert stat.S_IMODE(made.lstat().st_mode) == 0o700


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "socket").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartupError, match="not a private directory"):
        make_socket_dir(tmp_path / "socket")


def test_a_directory_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "socket").mkdir()
    (tmp_path / "socket").chmod(0o711)
    with pytest.raises(StartupError, match="not a private directory"):
        make_socket_dir(tmp_path / "socket")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_a_stranger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "socket").mkdir(mode=0o700)
    os.chown(tmp_path / "socket", 65534, 65534)
    with pytest.raises(StartupError, match="not a private directory"):
        make_socket_dir(tmp_path / "socket")


def write_pid_file(data: Path, pid: int, status: str = "ready   ") -> Path:
    path = data / "postmaster.pid"
    path.write_text(f"{pid}\n{data}\n1700000000\n5432\n/s\n\n  123 4\n{status}\n")
    return path


def test_a_pid_file_has_the_pid_and_whether_the_server_is_ready(tmp_path: Path) -> None:
    write_pid_file(tmp_path, 7)
    assert read_pid_file(tmp_path) == PidFile(pid=7, is_ready=True)
    write_pid_file(tmp_path, 7, status="starting")
    assert read_pid_file(tmp_path) == PidFile(pid=7, is_ready=False)


@pytest.mark.parametrize("text", ["", "\n", "x\n"])
def test_a_pid_file_that_is_absent_or_half_written_says_nothing(tmp_path: Path, text: str) -> None:
    assert read_pid_file(tmp_path) is None
    (tmp_path / "postmaster.pid").write_text(text)
    assert read_pid_file(tmp_path) is None


def test_a_half_written_pid_file_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text("7\n/d\n")
    assert read_pid_file(tmp_path) == PidFile(pid=7, is_ready=False)


def test_the_pid_file_is_dropped_when_its_pid_is_a_stranger(tmp_path: Path) -> None:
    path = write_pid_file(tmp_path, os.getpid())
    remove_stale_pid_file(tmp_path)
    assert not path.exists()


def test_the_pid_file_is_dropped_when_its_pid_is_a_corpse(tmp_path: Path) -> None:
    with subprocess.Popen(["true"], cwd=tmp_path) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not buried
        path = write_pid_file(tmp_path, process.pid)
        remove_stale_pid_file(tmp_path)
    assert not path.exists()


def test_the_pid_file_stays_if_its_process_runs_in_the_data_directory(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], cwd=tmp_path, stdin=subprocess.PIPE) as process:
        path = write_pid_file(tmp_path, process.pid)
        remove_stale_pid_file(tmp_path)
        assert path.exists()


def test_the_pid_file_of_a_process_that_is_gone_is_left_to_postgres(tmp_path: Path) -> None:
    path = write_pid_file(tmp_path, NO_SUCH_PID)
    remove_stale_pid_file(tmp_path)
    assert path.exists()


def test_no_pid_file_is_no_problem(tmp_path: Path) -> None:
    remove_stale_pid_file(tmp_path)
