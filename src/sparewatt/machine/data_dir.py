"""The directory that holds all state of one `sparewatt up`: private, and used by one process at a time.

The lock is the kernel's (`file_lock.py`), so it is gone the moment its holder is, however that ends; the pid in the
file is for people. What lies inside belongs to others. On Windows a user's own folder is private by itself.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from sparewatt.core.errors import StartupError
from sparewatt.machine.file_lock import FileLocked, lock_file

LOCK_NAME = "lock"


class DataDir:
    """An open data directory: `with DataDir(path) as data: data.path / "node.key"`."""

    def __init__(self, path: Path) -> None:
        """Create the directory if need be and lock it. StartupError when that is not possible."""
        self.path = make_private_dir(path.expanduser())
        self._lock_fd: int | None = _take_lock(self.path)

    def rename(self, name: str) -> None:
        """Another name beside the old one; it stays locked all the while."""
        self.path = self.path.rename(self.path.with_name(name))

    def close(self) -> None:
        """Give the directory back. The lock file stays: removing it would let two holders in."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def make_private_dir(path: Path) -> Path:
    """Create `path` with mode 0700, or accept one of ours that nobody else can write to. Returns it absolute."""
    path = path.resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise StartupError(f"Cannot create {path}: {error.strerror}. Choose another data directory.") from error
    if not hasattr(os, "geteuid"):  # Windows: no modes, and nobody else's eyes in a user's own folder
        return path
    if status.st_uid != os.geteuid():
        raise StartupError(f"{path} belongs to another user (uid {status.st_uid}). Choose another data directory.")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise StartupError(f"Others may write to {path}. Run `chmod go-w {path}` or choose another data directory.")
    return path


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by a file of mode 0600 in one step: a reader, or a crash, finds the old bytes or the new."""
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
    """Make a rename inside `path` survive a power cut. Windows cannot open a directory, and sees to it by itself."""
    directory_flag = getattr(os, "O_DIRECTORY", None)
    if directory_flag is None:
        return
    fd = os.open(path, os.O_RDONLY | directory_flag)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _take_lock(directory: Path) -> int:
    path = directory / LOCK_NAME
    try:
        return lock_file(path)
    except OSError as error:
        raise StartupError(f"Cannot open {path}: {error.strerror}. Choose another data directory.") from error
    except FileLocked as locked:
        raise StartupError(
            f"{directory} is in use by {locked.holder}. Stop that process, or choose another data directory."
        ) from None
