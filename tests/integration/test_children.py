"""The supervisor over real processes: order, restarts, children that ignore SIGTERM, and the death of the parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock, Timer
from sparewatt.core.errors import StartupError
from sparewatt.core.rng import seeded
from sparewatt.machine import children
from sparewatt.machine.children import ChildExit, ChildSpec, Supervisor

CEILING_S = 30.0

FOREVER = "import signal; signal.pause()"
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True: signal.pause()
"""
POLITE = """
import signal, sys
def leave(*_):
    with open(sys.argv[1], "a") as order: order.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("here", flush=True)
while True: signal.pause()
"""

MUTUAL = """
import pathlib, signal, sys, time
order, own, other = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def leave(*_):
    order.with_name(own + ".asked").touch()
    while not order.with_name(other + ".asked").exists(): time.sleep(0.005)
    with order.open("a") as lines: lines.write(own + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("here", flush=True)
while True: signal.pause()
"""

SUPERVISE = """
import asyncio, sys
from pathlib import Path
from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.machine import children
from sparewatt.machine.children import ChildSpec, Supervisor

OWN = "from sparewatt.machine.lifeline import die_with_parent as d; d(); print('own', flush=True)\\nwhile True: pass"
async def supervise(folder):
    async with Supervisor(clock=SystemClock(), rng=seeded(1), on_exit=print) as supervisor:
        await supervisor.start(ChildSpec("foreign", ("sleep", "3600"), Path(folder) / "foreign.log"))
        await supervisor.start(ChildSpec("own", (sys.executable, "-c", OWN), Path(folder) / "own.log"))
        print(*supervisor.pids().values(), flush=True)
        await asyncio.Event().wait()

__import__(sys.argv[2]).run(supervise(sys.argv[1]))
"""


class HastyClock(SystemClock):
    """A hundred times faster than the day."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(delay_s / 100, callback)


class Exits:
    """Collects what the supervisor reports."""

    def __init__(self) -> None:
        self.seen: list[ChildExit] = []

    def __call__(self, child_exit: ChildExit) -> None:
        self.seen.append(child_exit)


@pytest.fixture
def exits() -> Exits:
    return Exits()


@pytest.fixture
def supervisor(exits: Exits) -> Supervisor:
    return Supervisor(clock=HastyClock(), rng=seeded(1), on_exit=exits)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(CEILING_S):
        while not condition():  # noqa: ASYNC110  other processes set no event of ours
            await asyncio.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def python(name: str, code: str, folder: Path, *args: str) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", code, *args), folder / f"{name}.log", drain_s=CEILING_S)


def says(path: Path | None, text: str) -> Callable[[], bool]:
    return lambda: path is not None and path.exists() and text in path.read_text()


def with_ready_line(child: ChildSpec, text: str) -> ChildSpec:
    async def is_ready() -> bool:
        return says(child.log_path, text)()

    return ChildSpec(child.name, child.argv, child.log_path, is_ready=is_ready, drain_s=child.drain_s)


async def test_a_child_has_its_own_session_log_and_environment(supervisor: Supervisor, tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['COLOUR'], os.environ['SPAREWATT_PARENT_PID'], sys.stdin.read() == '')\n"
    code += "print('complaint', file=sys.stderr, flush=True); import signal; signal.pause()"
    child = ChildSpec("c", (sys.executable, "-c", code), tmp_path / "c.log", env={"COLOUR": "red"})
    async with supervisor:
        await supervisor.start(child)
        await until(says(child.log_path, "complaint"))
        pid = supervisor.pids()["c"]
        assert os.getsid(pid) == os.getpgid(pid) == pid
    log = tmp_path / "c.log"
    assert f"red {os.getpid()} True" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert supervisor.pids() == {}
    assert not is_running(pid)


async def test_a_child_reads_its_stdin_data_at_every_start(supervisor: Supervisor, tmp_path: Path) -> None:
    received = tmp_path / "received"
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read()); import signal; signal.pause()"
    child = ChildSpec("c", (sys.executable, "-c", code, str(received)), None, stdin_data=b"secret ")
    async with supervisor:
        await supervisor.start(child)
        await until(says(received, "secret "))
        supervisor.signal_all(signal.SIGKILL)
        await until(says(received, "secret secret "))


async def test_children_are_stopped_in_reverse_order(supervisor: Supervisor, exits: Exits, tmp_path: Path) -> None:
    order = tmp_path / "order"
    async with supervisor:
        for name in ("first", "second", "third"):
            await supervisor.start(with_ready_line(python(name, POLITE, tmp_path, str(order), name), "here"))
    assert order.read_text().split() == ["third", "second", "first"]
    assert exits.seen == []


async def test_children_that_do_not_need_each_other_stop_together(supervisor: Supervisor, tmp_path: Path) -> None:
    """Two that exit only after both got SIGTERM, between one that both need and one that needs them."""
    order = tmp_path / "order"
    async with asyncio.timeout(CEILING_S), supervisor:
        await supervisor.start(with_ready_line(python("base", POLITE, tmp_path, str(order), "base"), "here"))
        for name, other in (("left", "right"), ("right", "left")):
            child = with_ready_line(python(name, MUTUAL, tmp_path, str(order), name, other), "here")
            await supervisor.start(replace(child, needs=frozenset({"base"})))
        await supervisor.start(with_ready_line(python("top", POLITE, tmp_path, str(order), "top"), "here"))
    assert order.read_text().split()[0] == "top"
    assert sorted(order.read_text().split()[1:3]) == ["left", "right"]
    assert order.read_text().split()[3] == "base"


async def test_a_child_that_ignores_sigterm_is_killed_after_its_drain(supervisor: Supervisor, tmp_path: Path) -> None:
    deaf = with_ready_line(python("deaf", STUBBORN, tmp_path), "deaf")
    async with supervisor:
        await supervisor.start(ChildSpec("deaf", deaf.argv, deaf.log_path, is_ready=deaf.is_ready, drain_s=0.2))
        pid = supervisor.pids()["deaf"]
        began_s = time.monotonic()
        await supervisor.stop()
        assert 0.2 <= time.monotonic() - began_s < CEILING_S
    assert not is_running(pid)


async def test_what_a_killed_child_left_in_its_group_is_killed_too(supervisor: Supervisor, tmp_path: Path) -> None:
    code = "import subprocess, signal; print(subprocess.Popen(['sleep', '3600']).pid, flush=True); signal.pause()"
    child = with_ready_line(python("parent", code, tmp_path), "\n")
    async with supervisor:
        await supervisor.start(child)
        grandchild = int((tmp_path / "parent.log").read_text())
        assert is_running(grandchild)
    await until(lambda: not is_running(grandchild))


async def test_a_crashing_child_is_restarted_ever_more_slowly(
    supervisor: Supervisor, exits: Exits, tmp_path: Path
) -> None:
    async with supervisor:
        await supervisor.start(python("crash", "raise SystemExit(3)", tmp_path))
        await until(lambda: len(exits.seen) >= 5)
    assert {(seen.name, seen.returncode) for seen in exits.seen} == {("crash", 3)}
    assert len({seen.pid for seen in exits.seen}) == len(exits.seen)
    ceilings_s = [0.5, 1, 2, 4, 8]
    delays_s = [seen.restart_in_s for seen in exits.seen[:5]]
    assert all(d is not None and c / 2 <= d <= c for d, c in zip(delays_s, ceilings_s, strict=True))


async def test_a_killed_child_comes_back_with_a_new_pid(supervisor: Supervisor, exits: Exits, tmp_path: Path) -> None:
    async with supervisor:
        await supervisor.start(python("c", FOREVER, tmp_path))
        old = supervisor.pids()["c"]
        os.kill(old, signal.SIGKILL)
        await until(lambda: supervisor.pids().get("c", old) != old)
    assert [(seen.pid, seen.returncode) for seen in exits.seen] == [(old, -signal.SIGKILL)]


async def test_a_child_that_does_not_answer_is_killed_and_started_again(
    supervisor: Supervisor, exits: Exits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, it would not even take a SIGTERM. One answer in time is enough to stay."""
    monkeypatch.setattr(children, "HUNG_AFTER_S", 0.3)
    monkeypatch.setattr(children, "WATCH_EVERY_S", 0.02)
    stopped: set[int] = set()
    asked = 0

    async def is_alive() -> bool:
        nonlocal asked
        asked += 1
        if supervisor.pids().get("hung") in stopped:
            await asyncio.Event().wait()
        return True

    spec = replace(with_ready_line(python("hung", STUBBORN, tmp_path), "deaf"), is_alive=is_alive)
    async with asyncio.timeout(CEILING_S), supervisor:
        await supervisor.start(spec)
        first = supervisor.pids()["hung"]
        await until(lambda: asked > 3)
        assert exits.seen == []
        stopped.add(first)
        os.kill(first, signal.SIGSTOP)
        await until(lambda: supervisor.pids().get("hung", first) != first)
        assert not is_running(first)
        [ended] = exits.seen
        assert (ended.pid, ended.returncode, ended.was_hung) == (first, -signal.SIGKILL, True)
        second = supervisor.pids()["hung"]
        os.kill(second, signal.SIGKILL)
        await until(lambda: len(exits.seen) == 2)
        assert exits.seen[1].was_hung is False


async def test_a_child_that_answers_when_it_is_asked_again_stays(
    supervisor: Supervisor, exits: Exits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the parent that stood still."""
    monkeypatch.setattr(children, "HUNG_AFTER_S", 0.02)
    monkeypatch.setattr(children, "LAST_CHANCE_S", 5.0)
    monkeypatch.setattr(children, "WATCH_EVERY_S", 0.01)
    asked = 0

    async def is_alive() -> bool:
        nonlocal asked
        asked += 1
        if asked % 2:
            await asyncio.Event().wait()
        return True

    async with asyncio.timeout(CEILING_S), supervisor:
        await supervisor.start(replace(python("slow", FOREVER, tmp_path), is_alive=is_alive, drain_s=5.0))
        await until(lambda: asked > 6)
        assert exits.seen == []


async def test_stop_does_not_wait_for_a_restart_that_is_due_later(exits: Exits, tmp_path: Path) -> None:
    class SlowClock(SystemClock):
        def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
            return super().call_later(delay_s + 3600, callback)

    async with asyncio.timeout(CEILING_S), Supervisor(clock=SlowClock(), rng=seeded(1), on_exit=exits) as supervisor:
        await supervisor.start(python("crash", "raise SystemExit(3)", tmp_path))
        await until(lambda: len(exits.seen) == 1)
    assert len(exits.seen) == 1


async def test_a_child_that_ends_without_an_error_is_restarted_too(exits: Exits, tmp_path: Path) -> None:
    async with Supervisor(clock=HastyClock(), rng=seeded(1), on_exit=exits) as supervisor:
        await supervisor.start(python("c", "raise SystemExit(0)", tmp_path))
        await until(lambda: len(exits.seen) >= 2)
    assert {seen.returncode for seen in exits.seen} == {0}


async def test_start_returns_only_when_the_child_is_ready(supervisor: Supervisor, tmp_path: Path) -> None:
    asked = 0

    async def is_ready() -> bool:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise ConnectionRefusedError
        return asked > 4

    async with supervisor:
        await supervisor.start(ChildSpec("c", (sys.executable, "-c", FOREVER), tmp_path / "c.log", is_ready=is_ready))
        assert asked == 5


async def never() -> bool:
    return False


async def test_a_child_that_ends_before_it_is_ready_is_a_startup_error_with_its_log(
    supervisor: Supervisor, exits: Exits, tmp_path: Path
) -> None:
    argv = (sys.executable, "-c", "raise SystemExit('no such model')")
    async with supervisor:
        with pytest.raises(StartupError, match=r"(?s)c ended with status 1.*no such model"):
            await supervisor.start(ChildSpec("c", argv, tmp_path / "c.log", is_ready=never))
        assert supervisor.pids() == {}
    assert exits.seen == []


async def test_a_child_that_is_not_ready_in_time_is_ended(supervisor: Supervisor, tmp_path: Path) -> None:
    child = ChildSpec("c", ("sleep", "3600"), tmp_path / "c.log", is_ready=never, ready_timeout_s=0.1)
    async with supervisor:
        with pytest.raises(StartupError, match="not ready in time"):
            await supervisor.start(child)
        await until(lambda: supervisor.pids() == {})


async def test_a_program_that_does_not_exist_is_a_startup_error(supervisor: Supervisor, tmp_path: Path) -> None:
    async with supervisor:
        with pytest.raises(StartupError, match="cannot be started"):
            await supervisor.start(ChildSpec("c", (str(tmp_path / "none"),), tmp_path / "c.log"))


async def test_a_program_that_vanishes_is_tried_again(supervisor: Supervisor, exits: Exits, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\nrm '{program}'\n")
    program.chmod(0o755)
    async with supervisor:
        await supervisor.start(ChildSpec("c", (str(program),), tmp_path / "c.log"))
        await until(lambda: len(exits.seen) >= 3)
    assert [seen.returncode for seen in exits.seen[:3]] == [0, None, None]


async def test_children_are_stopped_when_the_body_fails_and_its_error_goes_on(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    pids: list[int] = []

    async def body() -> None:
        async with supervisor:
            await supervisor.start(python("c", FOREVER, tmp_path))
            pids.extend(supervisor.pids().values())
            raise LookupError

    with pytest.raises(LookupError):
        await body()
    assert [is_running(pid) for pid in pids] == [False]


async def test_an_exit_callback_that_raises_stops_all_children_and_propagates(tmp_path: Path) -> None:
    def fail(child_exit: ChildExit) -> None:
        raise LookupError

    pids: list[int] = []

    async def body() -> None:
        async with Supervisor(clock=HastyClock(), rng=seeded(1), on_exit=fail) as supervisor:
            await supervisor.start(python("good", FOREVER, tmp_path))
            pids.extend(supervisor.pids().values())
            await supervisor.start(python("crash", "raise SystemExit(3)", tmp_path))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(body(), CEILING_S)
    assert caught.group_contains(LookupError)
    assert not is_running(pids[0])


async def test_children_are_stopped_when_the_body_is_cancelled(supervisor: Supervisor, tmp_path: Path) -> None:
    async def body() -> None:
        async with supervisor:
            await supervisor.start(python("c", FOREVER, tmp_path))
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await until(lambda: "c" in supervisor.pids())
    pid = supervisor.pids()["c"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pid)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_children_are_gone_when_their_parent_is_killed(tmp_path: Path, loop: str) -> None:
    argv = [sys.executable, "-c", SUPERVISE, str(tmp_path), loop]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            pids = [int(word) for word in parent.stdout.readline().split()]
            assert len(pids) == 2
            asyncio.run(until(says(tmp_path / "own.log", "own")))
            assert all(is_running(pid) for pid in pids)
        finally:
            parent.kill()
    asyncio.run(until(lambda: not any(is_running(pid) for pid in pids)))
