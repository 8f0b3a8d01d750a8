"""A process's data directory: private, locked by one process at a time, files replaced atomically.

The lock is the kernel's (flock on Unix, a locked byte on Windows), so it is released when its holder dies, however that
happens; the pid in the lock file is only for people. This module does not know what is stored in the directory.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparewatt.core.errors import StartupError

LOCK_NAME = "lock"
LOCK_BYTE_OFFSET = 1 << 30
"""The byte that Windows locks: far behind the pid, since other processes cannot read a locked byte."""

Locker = Callable[[int], bool]
"""Locks an open file, by its descriptor. False if another process has locked it."""


class DataDir:
    """An open data directory: `with DataDir(path) as data: data.path / "node.key"`."""

    def __init__(self, path: Path) -> None:
        """Create the directory if need be and lock it. StartupError when that is not possible."""
        self.path = make_private_dir(path.expanduser())
        self._lock_fd: int | None = _lock_dir(self.path)

    def rename(self, name: str) -> None:
        """Rename it within its parent; it stays locked."""
        self.path = self.path.rename(self.path.with_name(name))

    def close(self) -> None:
        """Release the lock. The lock file stays: removing it would let two holders in."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def make_private_dir(path: Path) -> Path:
    """Create `path` with mode 0700, or accept one of ours that no other user can write to. Returns it absolute."""
    path = path.resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise StartupError(f"Cannot create {path}: {error.strerror}. Choose another data directory.") from error
    if not hasattr(os, "geteuid"):  # Windows has no modes, and a user's own folder is private there
        return path
    if status.st_uid != os.geteuid():
        raise StartupError(f"{path} belongs to another user (uid {status.st_uid}). Choose another data directory.")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise StartupError(f"Others may write to {path}. Run `chmod go-w {path}` or choose another data directory.")
    return path


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` atomically by a file of mode 0600: after a crash it has the old bytes or the new ones."""
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    fsync_dir(path.parent)


def fsync_dir(path: Path) -> None:
    """Make a rename inside `path` survive a power cut. Does nothing on Windows, which cannot open a directory."""
    directory_flag = getattr(os, "O_DIRECTORY", None)
    if directory_flag is None:
        return
    fd = os.open(path, os.O_RDONLY | directory_flag)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# the file lock


def lock_file(path: Path, *, locker: Locker | None = None) -> int:
    """Open and lock `path`, and write our pid into it. Closing the returned descriptor releases the lock.

    Raises OSError, or StartupError if another process has locked it.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
    if not (locker or platform_locker())(fd):
        holder = _read_holder(fd)
        os.close(fd)
        raise StartupError(f"{path.parent} is in use by {holder}. Stop that process, or choose another data directory.")
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def platform_locker() -> Locker:
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 (only on Windows)

        return byte_locker(msvcrt)
    return lock_by_flock


def lock_by_flock(fd: int) -> bool:
    import fcntl  # noqa: PLC0415 (not on Windows)

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def byte_locker(msvcrt: Any) -> Locker:
    """`msvcrt` is the module of that name; tests give a stand-in."""

    def lock_byte(fd: int) -> bool:
        os.lseek(fd, LOCK_BYTE_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True

    return lock_byte


def _read_holder(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    text = os.read(fd, 32).strip()
    return f"process {int(text)}" if text.isdigit() else "another process"


def _lock_dir(directory: Path) -> int:
    path = directory / LOCK_NAME
    try:
        return lock_file(path)
    except OSError as error:
        raise StartupError(f"Cannot open {path}: {error.strerror}. Choose another data directory.") from error
