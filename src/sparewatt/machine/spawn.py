"""Starts and ends one process: its own session, its own log, tied to our life, signalled only by its own pid.

Its own session keeps a Ctrl-C in the terminal from reaching it before we decide what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sparewatt.core.limits import KIB
from sparewatt.machine.lifeline import KILL, death_signal_preexec
from sparewatt.machine.logs import open_log

KILLED_WITHIN_S = 10.0
"""A killed process that is still there after this hangs in the kernel; waiting longer does not help."""


STDIN_BYTES_MAX = 16 * KIB
"""What a child may read from its standard input: less than any system's pipe holds, so that writing it never waits."""


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_path: Path | None,
    death_signal: signal.Signals,
    told: bytes = b"",
) -> Process:
    """Start `argv`; it gets `death_signal` when this process ends.

    Without a log of its own it writes where this process does. `told` is what it reads from its standard input: for
    what belongs into no process list, no environment and no file.
    """
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open_log(log_path)) if log_path is not None else None
        return await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=stack.enter_context(_filled_pipe(told)) if told else DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=death_signal_preexec(death_signal),
        )


@contextlib.contextmanager
def _filled_pipe(data: bytes) -> Iterator[int]:
    """The end of a pipe to read from, with everything in it already."""
    if len(data) > STDIN_BYTES_MAX:
        raise ValueError("too much for a pipe that nobody reads yet")
    reading, writing = os.pipe()
    try:
        try:
            os.write(writing, data)
        finally:
            os.close(writing)
        yield reading
    finally:
        os.close(reading)


async def stop_process(process: Process, *, steps: Sequence[tuple[signal.Signals, float]]) -> None:
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
    """Kill the process and whatever it left behind in its group; Windows has no groups, there the process alone."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, KILL)
        elif process.returncode is None:
            process.kill()


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
