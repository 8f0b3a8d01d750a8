"""A lock on a file that is the kernel's, so it is gone the moment its holder is, however that ends.

Unix has flock for it, Windows locks bytes. Both are here, each behind the same three calls; which one counts is decided
in one place, and tests hand the Windows one a system of their own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Protocol

LOCK_BYTE_OFFSET = 1 << 30
"""The byte that Windows locks: far behind the pid, since a locked byte cannot be read by others."""


class Locker(Protocol):
    def try_lock(self, fd: int) -> bool:
        """False if somebody else has it."""
        ...


class UnixLocker:
    def try_lock(self, fd: int) -> bool:
        import fcntl  # noqa: PLC0415 (not on Windows)

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class WindowsLocker:
    def __init__(self, system: Any = None) -> None:
        """`system` is the module msvcrt, or something that behaves like it."""
        self._system = system

    def try_lock(self, fd: int) -> bool:
        system = self._system
        if system is None:
            import msvcrt as system  # noqa: PLC0415 (only on Windows)
        os.lseek(fd, LOCK_BYTE_OFFSET, os.SEEK_SET)
        try:
            system.locking(fd, system.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True


def platform_locker() -> Locker:
    return WindowsLocker() if sys.platform == "win32" else UnixLocker()


class FileLocked(Exception):
    """Somebody else has it; `holder` says who, as far as the file tells."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"locked by {holder}")
        self.holder = holder


def lock_file(path: Path, *, locker: Locker | None = None) -> int:
    """Open and lock it, and write our pid into it, for people. Close it to give it back.

    Raises FileLocked or OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
    if not (locker or platform_locker()).try_lock(fd):
        holder = _holder(fd)
        os.close(fd)
        raise FileLocked(holder)
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def _holder(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    text = os.read(fd, 32).strip()
    return f"process {int(text)}" if text.isdigit() else "another process"
