"""The file lock on Unix and on Windows, whose system calls are faked here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.machine import data_dir
from sparewatt.machine.data_dir import (
    LOCK_BYTE_OFFSET,
    DataDir,
    Locker,
    byte_locker,
    fsync_dir,
    lock_by_flock,
    lock_file,
    make_private_dir,
)


class Msvcrt:
    """Locks bytes of files as Windows does: by file and position, for every descriptor."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.locked: set[tuple[int, int]] = set()

    def locking(self, fd: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (self.LK_NBLCK, 1)
        place = (os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR))
        if place in self.locked:
            raise PermissionError(13, "Permission denied")
        self.locked.add(place)


@pytest.fixture(params=["unix", "windows"])
def locker(request: pytest.FixtureRequest) -> Locker:
    return lock_by_flock if request.param == "unix" else byte_locker(Msvcrt())


def test_a_lock_is_taken_once_and_names_its_holder(tmp_path: Path, locker: Locker) -> None:
    fd = lock_file(tmp_path / "lock", locker=locker)
    with pytest.raises(StartupError, match=f"process {os.getpid()}"):
        lock_file(tmp_path / "lock", locker=locker)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    os.close(fd)


def test_windows_locks_a_byte_behind_the_pid(tmp_path: Path) -> None:
    system = Msvcrt()
    os.close(lock_file(tmp_path / "lock", locker=byte_locker(system)))
    assert {place for _, place in system.locked} == {LOCK_BYTE_OFFSET}


def test_a_data_directory_works_where_there_are_no_users_and_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_dir, "platform_locker", lambda: byte_locker(Msvcrt()))
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "O_DIRECTORY")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert make_private_dir(open_to_all) == open_to_all
    with DataDir(tmp_path / "data") as data:
        data_dir.write_private(data.path / "file", b"x")
        fsync_dir(data.path)
        assert (data.path / "file").read_bytes() == b"x"
