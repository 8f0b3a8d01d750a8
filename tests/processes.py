"""Real processes in tests: waiting with a ceiling, reading what they wrote, and knowing what they left behind.

A process is ended by its own pid and by nothing else. Linux only: what runs below a process is read from /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparewatt.machine.lifeline import death_signal_preexec

CEILING_S = 30.0
"""After this long a test that waits for something gives up."""

POLL_S = 0.02
TAIL_BYTES = 4000

Identity = tuple[int, int]
"""A process: its pid and the tick it was started at, since a pid alone may soon be somebody else's."""


def start_process(
    argv: Sequence[str], *, output: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `argv`, its output appended to a file. Call it from the main thread: the process ends with that thread."""
    with output.open("ab") as sink:
        return subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,  # a Ctrl-C that is meant for the tests must not reach it
            preexec_fn=death_signal_preexec(signal.SIGTERM),  # noqa: PLW1509 (two system calls, looked up before)
        )


def wait_until(holds: Callable[[], bool], what: str, *, ceiling_s: float = CEILING_S) -> None:
    """Look again and again until it holds; an AssertionError that says `what` is still so when it never does."""
    deadline_s = time.monotonic() + ceiling_s
    while not holds():
        assert time.monotonic() < deadline_s, f"after {ceiling_s:.0f} s: {what}"
        time.sleep(POLL_S)


def tail(path: Path) -> str:
    """The end of a file, for a message."""
    try:
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        return f"(no {path.name})"


def end_process(process: subprocess.Popen[bytes], sig: signal.Signals, *, ceiling_s: float = CEILING_S) -> int | None:
    """Ask once and wait. Its status, or None when it did not go and had to be killed."""
    if process.poll() is None:
        process.send_signal(sig)
    try:
        return process.wait(ceiling_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(CEILING_S)
        return None


def descendants_of(pid: int) -> set[Identity]:
    """The processes below `pid`, however deep. Those whose parent died before are no longer below it."""
    stats = _all_processes()
    children: dict[int, list[int]] = {}
    for child, stat in stats.items():
        children.setdefault(stat.parent, []).append(child)
    found: set[Identity] = set()
    waiting = list(children.get(pid, ()))
    while waiting:
        child = waiting.pop()
        found.add((child, stats[child].started))
        waiting.extend(children.get(child, ()))
    return found


def alive(processes: set[Identity]) -> set[Identity]:
    """Those that still run; one that has ended and was not collected yet does not."""
    return {each for each in processes if _is_alive(each)}


def kill_all(processes: set[Identity]) -> None:
    for pid, _ in alive(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def commands_of(processes: set[Identity]) -> dict[int, str]:
    """What they are, for a message."""
    commands = {}
    for pid, _ in alive(processes):
        with contextlib.suppress(OSError):
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return commands


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    started: int


def _is_alive(process: Identity) -> bool:
    pid, started = process
    stat = _stat(pid)
    return stat is not None and stat.started == started and stat.state not in "ZX"


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold anything
    return _Stat(state=fields[0], parent=int(fields[1]), started=int(fields[19]))


def _all_processes() -> dict[int, _Stat]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: stat for pid in pids if (stat := _stat(pid)) is not None}
