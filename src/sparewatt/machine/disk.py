"""Free space on a disk, space reserved for a file ahead of time, and which errors mean that a disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sparewatt.core.limits import KIB

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ZEROS = bytes(64 * KIB)


def is_disk_full(error: OSError) -> bool:
    """No space left on the device, or none left of this user's quota."""
    return error.errno in _FULL


def disk_full_error() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def free_bytes(path: Path) -> int:
    """What this process may still write on the disk that `path` is on. Quotas are not counted."""
    found = os.statvfs(path)
    return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)


def reserve_space(fd: int, start: int, n_bytes: int) -> None:
    """Make the file `n_bytes` longer than `start`, with blocks that a full disk cannot take away. Raises OSError.

    The bytes are zero. A copy-on-write file system may still need new blocks when they are overwritten.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, n_bytes)
        return
    end = start + n_bytes
    while start < end:
        written = os.pwrite(fd, _ZEROS[: end - start], start)
        if written == 0:
            raise disk_full_error()
        start += written
