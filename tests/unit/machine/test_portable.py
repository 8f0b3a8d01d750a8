"""What differs between systems: locks and signals. The Windows halves run here on stand-ins for what Windows has."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparewatt.machine import data_dir, file_lock
from sparewatt.machine.data_dir import DataDir, fsync_dir, make_private_dir
from sparewatt.machine.file_lock import LOCK_BYTE_OFFSET, FileLocked, Locker, UnixLocker, WindowsLocker, lock_file
from sparewatt.machine.signals import on_signals
from tests.waiting import until


class Msvcrt:
    """Locks bytes of files as Windows does: by file and position, whoever opened it."""

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
    return UnixLocker() if request.param == "unix" else WindowsLocker(Msvcrt())


def test_a_lock_is_taken_once_and_names_its_holder(tmp_path: Path, locker: Locker) -> None:
    fd = lock_file(tmp_path / "lock", locker=locker)
    with pytest.raises(FileLocked, match=f"process {os.getpid()}"):
        lock_file(tmp_path / "lock", locker=locker)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    os.close(fd)


def test_windows_locks_a_byte_that_nobody_reads(tmp_path: Path) -> None:
    system = Msvcrt()
    os.close(lock_file(tmp_path / "lock", locker=WindowsLocker(system)))
    assert {place for _, place in system.locked} == {LOCK_BYTE_OFFSET}


def test_a_data_directory_works_where_there_are_no_users_and_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "platform_locker", lambda: WindowsLocker(Msvcrt()))
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


class WindowsLoop:
    """An event loop that, like that of Windows, does not listen for signals; everything else is the real one's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add_signal_handler(self, number: int, received: Callable[[], None]) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize("system", ["unix", "windows"])
async def test_a_signal_is_heard_in_the_loop(system: str) -> None:
    loop, heard = asyncio.get_running_loop(), list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        on_signals(lambda: heard.append(1), loop=loop if system == "unix" else WindowsLoop(loop))  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: bool(heard))
        assert heard == [1]
    finally:
        for number, handler in before.items():
            if system == "unix":
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
