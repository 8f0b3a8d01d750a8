"""The socket directory and the pid file of an embedded PostgreSQL.

A Unix socket's path must be short, so a deep data directory gets a socket directory under the system's temporary one.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError

PORT = 5432
"""Only part of the socket's name: the server does not listen on the network."""

SOCKET_PATH_BYTES_MAX = 99
"""Linux allows 107 and macOS 103; some clients also count the lock file's longer name."""

_PLAIN = re.compile(r"[A-Za-z0-9/._+@=~ -]+")
"""Paths that need no quoting in PostgreSQL's list of socket directories nor in a client's list of hosts."""


@dataclass(frozen=True, slots=True)
class PidFile:
    """The two lines of `postmaster.pid` that we use."""

    pid: int
    is_ready: bool


def choose_socket_dir(home: Path, *, temporary_root: Path | None = None) -> Path:
    """`home/socket` if that is short enough, else a short name that depends only on `home` and the user."""
    if _fits(home / "socket"):
        return home / "socket"
    name = f"sparewatt-{os.geteuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"
    short = (temporary_root or Path(tempfile.gettempdir())) / name
    return short if _fits(short) else Path("/tmp") / name  # noqa: S108 (make_socket_dir checks who owns it)


def make_socket_dir(path: Path) -> Path:
    """Create it with mode 0700, or accept an existing one that is ours and private."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()  # not stat: another user's symlink would decide where our socket is
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not ours or stat.S_IMODE(status.st_mode) & 0o077:
            raise StartupError(f"{path} is not a private directory of ours. Look who made it, and remove it.") from None
    return path


def read_pid_file(data: Path) -> PidFile | None:
    """None when there is no file, or it is half-written."""
    try:
        lines = (data / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    return PidFile(pid=int(lines[0]), is_ready=len(lines) > 7 and lines[7].strip() == "ready")


def remove_stale_pid_file(data: Path) -> None:
    """Remove the pid file of a killed server whose pid now belongs to another process, or to a zombie.

    PostgreSQL would take either for a running server and refuse to start. Both are common in containers, where pids are
    reused soon and process 1 may not reap zombies.
    """
    pid_file = read_pid_file(data)
    if pid_file is not None and _is_stale_pid(pid_file.pid, data):
        (data / "postmaster.pid").unlink(missing_ok=True)


def _is_stale_pid(pid: int, data: Path) -> bool:
    """Whether this process cannot be the server of `data`, whose working directory is `data`; False when in doubt."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state in "ZX" or (process / "cwd").readlink() != data.resolve()
    except OSError:  # gone, not readable by us, or no /proc: PostgreSQL decides
        return False


def _fits(directory: Path) -> bool:
    socket = os.fsencode(directory / f".s.PGSQL.{PORT}")
    return len(socket) <= SOCKET_PATH_BYTES_MAX and _PLAIN.fullmatch(str(directory)) is not None
