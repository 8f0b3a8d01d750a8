"""What differs between systems: locks and signals. The Windows branches run here on stand-ins for its system calls."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from sparewatt.machine.signals import on_signals
from tests.waiting import until


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


class WindowsLoop:
    """An event loop that cannot watch signals, as on Windows; all other calls go to the real loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def add_signal_handler(self, number: int, received: Callable[[], None]) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize("system", ["unix", "windows"])
async def test_a_signal_calls_back_in_the_loop(system: str) -> None:
    loop, calls = asyncio.get_running_loop(), list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        on_signals(lambda: calls.append(1), loop=loop if system == "unix" else WindowsLoop(loop))  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: bool(calls))
        assert calls == [1]
    finally:
        for number, handler in before.items():
            if system == "unix":
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
