"""Starts and ends one process: its own session, its own log, tied to our life, signalled only by its own pid.

Its own session keeps a Ctrl-C in the terminal from reaching it before we decide what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparewatt.supervisor.lifeline import death_signal_preexec
from sparewatt.supervisor.logs import open_log

KILLED_WITHIN_S = 10.0
"""A killed process that is still there after this hangs in the kernel; waiting longer does not help."""


async def spawn(
    argv: Sequence[str], *, env: Mapping[str, str], log_path: Path, death_signal: signal.Signals
) -> Process:
    """Start `argv`; it gets `death_signal` when this process ends."""
    with open_log(log_path) as log:
        return await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=death_signal_preexec(death_signal),
        )


async def end(process: Process, *, steps: Sequence[tuple[signal.Signals, float]]) -> None:
    """Ask with each signal in turn and wait its seconds; in the end kill what is left of the process's group."""
    try:
        for sig, patience_s in steps:
            _send(process, sig)
            if await exits_within(process, patience_s):
                break
    finally:
        kill_group(process)
    await exits_within(process, KILLED_WITHIN_S)


async def exits_within(process: Process, patience_s: float) -> bool:
    """Wait for the process to end, at most `patience_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await process.wait()
    return process.returncode is not None


def kill_group(process: Process) -> None:
    """SIGKILL the process and whatever it left behind in its group."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()  # it has no groups of this kind
            return
        os.killpg(process.pid, signal.SIGKILL)


def _send(process: Process, sig: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, sig)


def free_port() -> int:
    """A port of this machine that nobody uses at this moment, for a child that cannot choose its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
