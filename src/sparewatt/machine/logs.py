"""Log files of child processes: private, appended to, and bounded by starting anew when they have grown."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path

from sparewatt.core.limits import MIB

LOG_BYTES_MAX = 10 * MIB
"""A log bigger than this is set aside at the next start; one older log is kept."""

TAIL_BYTES = 2000
"""What an error message shows of a log: about the last twenty lines."""


def open_log(path: Path) -> FileIO:
    """Open for appending with mode 0600; a log that has grown too big becomes `NAME.1`."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(f"{path.name}.1"))
    return FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def read_tail(path: Path, *, since: int = 0) -> str:
    """Read the last lines written after byte `since`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(since, size - TAIL_BYTES))
        return file.read(TAIL_BYTES).decode(errors="replace").strip()
