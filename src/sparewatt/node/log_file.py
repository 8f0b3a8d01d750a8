"""The agent's log file: lines of JSON in its data directory, rotated, for `sparewatt node logs`."""

from __future__ import annotations

import logging
import logging.handlers
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sparewatt.core.limits import MIB
from sparewatt.core.log import JsonFormatter, stderr_handler

FILE = "node.log"
BYTES_MAX = 5 * MIB
OLDER_FILES_MAX = 2
OWNER_MESSAGE_EVENT = "told"
"""The event of a message that is also on the owner's terminal."""


class _QuietFileHandler(logging.handlers.RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the library's name)
        """A full disk must not fill the terminal with tracebacks."""


def log_to_file(data_dir: Path) -> None:
    """Log to stderr instead if the file cannot be opened: a full disk must not keep a node from starting."""
    handler: logging.Handler
    try:
        handler = _QuietFileHandler(
            data_dir / FILE, maxBytes=BYTES_MAX, backupCount=OLDER_FILES_MAX, encoding="utf-8", delay=False
        )
        (data_dir / FILE).chmod(0o600)
        handler.setFormatter(JsonFormatter())
    except OSError:
        handler = stderr_handler()
        handler.addFilter(lambda record: record.msg != OWNER_MESSAGE_EVENT)
    logging.getLogger().addHandler(handler)


def last_lines(data_dir: Path, count: int) -> list[str]:
    """The newest, oldest first. Raises FileNotFoundError if no node ever wrote one."""
    with (data_dir / FILE).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BYTES_MAX))
        lines = file.read(BYTES_MAX).decode(errors="replace").splitlines()
    return lines[-count:]


def follow_lines(data_dir: Path, *, wait: Callable[[], None]) -> Iterator[str]:
    """New lines as they are written, also over a rotation. `wait()` is called whenever there is none."""
    path = data_dir / FILE
    file = path.open("rb")
    file.seek(0, os.SEEK_END)
    rest = b""
    try:
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not lines:
                wait()
                if path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                    file.close()
                    file, rest = path.open("rb"), b""
    finally:
        file.close()
