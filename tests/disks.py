"""A small disk of its own for a test: a tmpfs, which a test can fill and empty again. Needs the right to mount."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = "filler"
_BLOCKS = (1 << 20, 4096, 512, 1)


def why_no_disk() -> str | None:
    """What this machine lacks; None when a disk can be made here."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root can mount a small disk"
    return None


@contextmanager
def small_disk(folder: Path, *, mib: int) -> Iterator[Path]:
    """A file system of this size at `folder`, gone with all that is in it."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """To the last byte, however much others take or free meanwhile."""
    with (disk / _FILLER).open("ab", buffering=0) as file:
        for size in _BLOCKS:
            while _takes(file.fileno(), bytes(size)):
                pass


def _takes(fd: int, data: bytes) -> bool:
    try:
        return os.write(fd, data) == len(data)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def empty(disk: Path) -> None:
    (disk / _FILLER).unlink()
