"""Keeps our own child processes running: starts them in order, restarts what crashes, stops each before what it needs.

It never gives up on a child that was once ready, and tells of every exit. A child that does not even become ready the
first time is a mistake for a person to look at: `start` raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

from sparewatt.core.clock import Clock
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import DRAIN_S
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Backoff, sleep
from sparewatt.machine.lifeline import KILL, PARENT_PID_ENV
from sparewatt.machine.logs import read_tail
from sparewatt.machine.spawn import KILLED_WITHIN_S, exits_within, kill_group, spawn, stop_process

READY_POLL_S = 0.05
READY_CHECK_S = 5.0
"""One ready check that takes longer counts as no."""


class RestartPolicy(Enum):
    """Which exits of a child make it start again."""

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run and how. `env` is laid over our own environment."""

    name: str
    argv: tuple[str, ...]
    log_path: Path | None
    """None: it writes where we do."""
    env: Mapping[str, str] = field(default_factory=dict)
    restart: RestartPolicy = RestartPolicy.ALWAYS
    is_ready: Callable[[], Awaitable[bool]] | None = None
    ready_timeout_s: float = 30.0
    drain_s: float = DRAIN_S
    death_signal: signal.Signals = KILL
    needs: frozenset[str] | None = None
    """Names of those started before it that must outlive it; None: all of them."""
    stdin_data: bytes = b""
    """What it reads from its standard input, each time it starts."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """An exit that nobody asked for. `returncode` is None when the child could not even be started."""

    name: str
    pid: int | None
    returncode: int | None
    uptime_s: float
    restart_in_s: float | None


class Supervisor:
    """An async context manager: children started inside are stopped, each before what it needs, when it ends."""

    def __init__(self, *, clock: Clock, rng: Rng, on_exit: Callable[[ChildExit], None]) -> None:
        self._clock = clock
        self._rng = rng
        self._on_exit = on_exit
        self._children: list[tuple[_SupervisedChild, asyncio.Task[None]]] = []
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            if isinstance(error, asyncio.CancelledError):
                await self._tasks.__aexit__(kind, error, tb)
            else:  # an error of the body goes on as it is, not wrapped in a group
                await self._tasks.__aexit__(None, None, None)

    async def start(self, child: ChildSpec) -> None:
        """Start `child`, wait until it is ready. StartupError with the end of its log when it does not get there."""
        keeper = _SupervisedChild(child, clock=self._clock, backoff=Backoff(self._rng), on_exit=self._on_exit)
        self._children.append((keeper, self._tasks.create_task(keeper.run(), name=f"keep {child.name}")))
        await keeper.first_ready

    def signal_all(self, sig: signal.Signals) -> None:
        """Pass a signal on to the children that run right now."""
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    async def stop(self) -> None:
        """Stop all children: each is asked as soon as those are gone that need it, and waits for nobody else."""
        kept = tuple(self._children)
        async with asyncio.TaskGroup() as stopping:
            for place, (keeper, task) in enumerate(kept):
                later = [other for dependent, other in kept[place + 1 :] if dependent.depends_on(keeper)]
                stopping.create_task(_stop_after(later, keeper, task))
        self._children = [one for one in self._children if one not in kept]

    def pids(self) -> dict[str, int]:
        """Name the children that run right now."""
        return {keeper.child.name: keeper.pid for keeper, _ in self._children if keeper.pid is not None}


async def _stop_after(others: list[asyncio.Task[None]], keeper: _SupervisedChild, task: asyncio.Task[None]) -> None:
    if others:
        await asyncio.wait(others)
    keeper.stop_requested.set()
    await asyncio.wait({task})


class _SupervisedChild:
    """One child's life. All that happens to its process happens in the one task that runs `run`."""

    def __init__(
        self, child: ChildSpec, *, clock: Clock, backoff: Backoff, on_exit: Callable[[ChildExit], None]
    ) -> None:
        self.child = child
        self.pid: int | None = None
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_requested = asyncio.Event()
        self._clock = clock
        self._backoff = backoff
        self._on_exit = on_exit

    def depends_on(self, earlier: _SupervisedChild) -> bool:
        return self.child.needs is None or earlier.child.name in self.child.needs

    async def run(self) -> None:
        """Run the child again and again until it is asked to stop or its policy says that it is done."""
        try:
            while await self._run_once():
                pass
        finally:
            self._fail_first_start("was stopped before it was ready")

    async def _run_once(self) -> bool:
        """One start to exit, and the pause after it. False when there is no next time."""
        started_s = self._clock.now_s()
        process: Process | None = None
        try:
            process = await self._spawn()
        except OSError as error:
            self._fail_first_start(f"cannot be started: {error}")
        if process is not None:
            await self._run_to_exit(process)
        if self.stop_requested.is_set() or self.first_ready.cancelled() or self.first_ready.exception() is not None:
            return False
        return await self._report_and_back_off(process, uptime_s=self._clock.now_s() - started_s)

    async def _spawn(self) -> Process:
        env = {**os.environ, **self.child.env, PARENT_PID_ENV: str(os.getpid())}
        child = self.child
        return await spawn(
            child.argv, env=env, log_path=child.log_path, death_signal=child.death_signal, told=child.stdin_data
        )

    async def _run_to_exit(self, process: Process) -> None:
        """From a started process to one that is gone, by itself or because we ended it."""
        self.pid = process.pid
        try:
            if await self._becomes_ready(process):
                await self._wait_unless_stopped(process.wait())
            await stop_process(process, steps=((signal.SIGTERM, self.child.drain_s),))
        finally:
            self.pid = None
            if process.returncode is None:  # this task was cancelled; later the pid may be a stranger's
                kill_group(process)
                await exits_within(process, KILLED_WITHIN_S)

    async def _becomes_ready(self, process: Process) -> bool:
        deadline_s = self._clock.now_s() + self.child.ready_timeout_s
        while process.returncode is None and not self.stop_requested.is_set() and self._clock.now_s() < deadline_s:
            if await self._check_ready():
                if not self.first_ready.done():
                    self.first_ready.set_result(None)
                return True
            await self._wait_unless_stopped(sleep(READY_POLL_S, clock=self._clock))
        why = "is not ready in time" if process.returncode is None else f"ended with status {process.returncode}"
        log_path = self.child.log_path
        said = "" if log_path is None else f" The end of {log_path}:\n{read_tail(log_path)}"
        self._fail_first_start(f"{why}.{said}")
        return False

    async def _check_ready(self) -> bool:
        if self.child.is_ready is None:
            return True
        try:
            async with asyncio.timeout(READY_CHECK_S):
                return await self.child.is_ready()
        except OSError:  # nobody listens yet, or no answer in time
            return False

    def _fail_first_start(self, why: str) -> None:
        if not self.first_ready.done():
            self.first_ready.set_exception(StartupError(f"{self.child.name} {why}"))

    async def _report_and_back_off(self, process: Process | None, *, uptime_s: float) -> bool:
        returncode = None if process is None else process.returncode
        delay_s = self._backoff.next_delay_s(uptime_s=uptime_s) if self._should_restart(returncode) else None
        pid = None if process is None else process.pid
        self._on_exit(ChildExit(self.child.name, pid, returncode, uptime_s=uptime_s, restart_in_s=delay_s))
        if delay_s is None:
            return False
        await self._wait_unless_stopped(sleep(delay_s, clock=self._clock))
        return not self.stop_requested.is_set()

    def _should_restart(self, returncode: int | None) -> bool:
        match self.child.restart:
            case RestartPolicy.ALWAYS:
                return True
            case RestartPolicy.ON_FAILURE:
                return returncode != 0
            case RestartPolicy.NEVER:
                return False
            case _ as never:
                assert_never(never)

    async def _wait_unless_stopped(self, other: Coroutine[None, None, object]) -> None:
        """Wait for `other`, or until this child is asked to stop."""
        tasks = {asyncio.create_task(other), asyncio.create_task(self.stop_requested.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
