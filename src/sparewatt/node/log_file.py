"""The agent's own log: lines of JSON in its data directory, bounded, for `sparewatt node logs`."""

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
"""Older files."""


class _QuietFileHandler(logging.handlers.RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (the library's name)
        """A full disk is no reason to write traces to the terminal."""


OWNER_MESSAGE_EVENT = "told"
"""The event of what also stands on the terminal, in words."""


def log_to_file(data_dir: Path) -> logging.Handler:
    """Write everything that is logged there. Where that cannot be, to stderr: a full disk must not keep a node away."""
    try:
        handler = _QuietFileHandler(
            data_dir / FILE, maxBytes=BYTES_MAX, backupCount=OLDER_FILES_MAX, encoding="utf-8", delay=False
        )
        (data_dir / FILE).chmod(0o600)
    except OSError:
        return _add_handler(_on_stderr())
    handler.setFormatter(JsonFormatter())
    return _add_handler(handler)


def _on_stderr() -> logging.Handler:
    handler = stderr_handler()
    handler.addFilter(lambda record: record.msg != OWNER_MESSAGE_EVENT)
    return handler


def _add_handler(handler: logging.Handler) -> logging.Handler:
    logging.getLogger().addHandler(handler)
    return handler


def last_lines(data_dir: Path, count: int) -> list[str]:
    """The newest, oldest first. Raises FileNotFoundError if no node ever wrote one."""
    path = data_dir / FILE
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BYTES_MAX))
        lines = file.read(BYTES_MAX).decode(errors="replace").splitlines()
    return lines[-count:]


def follow_lines(data_dir: Path, *, wait: Callable[[], None]) -> Iterator[str]:
    """Lines as they come; `wait()` is called when there is none. After a file that was set aside comes the new one."""
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
