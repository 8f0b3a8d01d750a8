"""The data directory: private, one holder at a time, files replaced in one step."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.machine.data_dir import LOCK_NAME, DataDir, make_private_dir, write_private


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_is_created_with_its_parents_and_private(tmp_path: Path) -> None:
    with DataDir(tmp_path / "deep" / "er") as data:
        assert data.path.is_dir()
        assert mode_of(data.path) == 0o700


def test_an_existing_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with pytest.raises(StartupError, match="chmod go-w"):
        make_private_dir(open_to_all)


def test_an_existing_directory_of_ours_is_accepted_and_left_as_it_is(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    ours.chmod(0o755)
    assert make_private_dir(ours) == ours
    assert mode_of(ours) == 0o755


def test_a_file_in_the_way_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StartupError, match="Cannot create"):
        DataDir(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    with pytest.raises(StartupError, match="another user"):
        make_private_dir(theirs)


def test_the_lock_holds_our_pid_and_is_private(tmp_path: Path) -> None:
    with DataDir(tmp_path / "d") as data:
        assert (data.path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
        assert mode_of(data.path / LOCK_NAME) == 0o600


def test_a_second_process_is_refused_and_the_error_names_the_holder(tmp_path: Path) -> None:
    with DataDir(tmp_path / "d"), pytest.raises(StartupError, match=f"process {os.getpid()}.*Stop that process"):
        DataDir(tmp_path / "d")


def test_the_refused_holder_does_not_spoil_the_lock_file(tmp_path: Path) -> None:
    with DataDir(tmp_path / "d") as data:
        for _ in range(2):
            with pytest.raises(StartupError, match="in use"):
                DataDir(data.path)
        assert (data.path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_the_directory_can_be_taken_again_after_it_was_given_back(tmp_path: Path) -> None:
    DataDir(tmp_path / "d").close()
    with DataDir(tmp_path / "d") as data:
        data.close()
        data.close()


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    code = "import sys, os, signal, pathlib\nfrom sparewatt.machine.data_dir import DataDir\n"
    code += "data = DataDir(pathlib.Path(sys.argv[1]))\nos.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d")], check=False, timeout=30)
    assert killed.returncode == -9
    assert (tmp_path / "d" / LOCK_NAME).read_text() != ""
    with DataDir(tmp_path / "d"):
        pass


def test_a_link_in_place_of_the_lock_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    directory = make_private_dir(tmp_path / "d")
    (directory / LOCK_NAME).symlink_to(victim)
    with pytest.raises(StartupError, match="Cannot open"):
        DataDir(directory)
    assert victim.read_text() == "precious"


def test_a_private_file_has_mode_0600_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write_private(tmp_path / "key", b"secret")
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "key") == 0o600
    assert (tmp_path / "key").read_bytes() == b"secret"


def test_a_private_file_replaces_an_open_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as reader:
        write_private(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert mode_of(path) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "key", b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]
