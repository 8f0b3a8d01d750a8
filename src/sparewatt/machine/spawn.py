"""Starts and stops one child process: in its own session, with its own log file, tied to the life of this process.

In a session of its own the child does not receive the terminal's Ctrl-C; this process decides when to stop it. A log
file is private, appended to, and rotated at a start when it has grown too large.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

from sparewatt.core.limits import KIB, MIB
from sparewatt.machine.lifeline import KILL, death_signal_preexec

KILLED_WITHIN_S = 10.0
"""A killed process that still exists after this hangs in the kernel; waiting longer does not help."""

STDIN_BYTES_MAX = 16 * KIB
"""Less than a pipe holds on any system, so that the parent's write never blocks."""

LOG_BYTES_MAX = 10 * MIB
"""A larger log is renamed at the next start; one older log is kept."""

LOG_TAIL_BYTES = 2000
"""What an error message shows of a log: about the last twenty lines."""


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_path: Path | None,
    death_signal: signal.Signals,
    stdin_data: bytes = b"",
    cwd: Path | None = None,
) -> Process:
    """Start `argv`; the kernel sends it `death_signal` when this process ends.

    Without `log_path` it inherits stdout and stderr. `stdin_data` carries secrets, which must not be in the process
    list, the environment or a file.
    """
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open_log(log_path)) if log_path is not None else None
        return await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            cwd=cwd,
            stdin=stack.enter_context(_filled_pipe(stdin_data)) if stdin_data else DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=death_signal_preexec(death_signal),
        )


@contextlib.contextmanager
def _filled_pipe(data: bytes) -> Iterator[int]:
    """The read end of a pipe that already holds all of `data`."""
    if len(data) > STDIN_BYTES_MAX:
        raise ValueError(f"stdin_data is larger than {STDIN_BYTES_MAX} bytes")
    read_fd, write_fd = os.pipe()
    try:
        try:
            os.write(write_fd, data)
        finally:
            os.close(write_fd)
        yield read_fd
    finally:
        os.close(read_fd)


async def stop_process(process: Process, *, steps: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send each signal and wait up to its timeout in seconds; then kill what is left of the process group."""
    try:
        for sig, timeout_s in steps:
            _send(process, sig)
            if await exits_within(process, timeout_s):
                break
    finally:
        kill_group(process)
    await exits_within(process, KILLED_WITHIN_S)


async def exits_within(process: Process, timeout_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await process.wait()
    return process.returncode is not None


def kill_group(process: Process) -> None:
    """Kill the process and all descendants in its group. Windows has no groups: there the process alone."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, KILL)
        elif process.returncode is None:
            process.kill()


def _send(process: Process, sig: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, sig)


def open_log(path: Path) -> FileIO:
    """Open for appending with mode 0600; a log over LOG_BYTES_MAX becomes `NAME.1` first."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(f"{path.name}.1"))
    return FileIO(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))


def read_tail(path: Path, *, since: int = 0) -> str:
    """The last lines written after byte `since`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(since, size - LOG_TAIL_BYTES))
        return file.read(LOG_TAIL_BYTES).decode(errors="replace").strip()


def free_port() -> int:
    """A TCP port that is free at this moment, for a child that cannot choose its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
