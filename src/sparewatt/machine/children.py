"""A supervisor of child processes: starts them in order, restarts crashed ones, stops each before what it needs.

A child that was ready once is restarted without limit, with exponential back-off, and every exit is reported. One that
hangs is killed and restarted (a watchdog, where the child can be asked). A child that does not become ready the first
time is a configuration error: `start` raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import StartupError
from sparewatt.core.limits import DRAIN_S
from sparewatt.core.rng import Rng
from sparewatt.machine.backoff import Backoff
from sparewatt.machine.lifeline import KILL, PARENT_PID_ENV
from sparewatt.machine.spawn import KILLED_WITHIN_S, exits_within, kill_group, read_tail, spawn, stop_process

READY_POLL_S = 0.05
READY_CHECK_S = 5.0
"""A ready check that takes longer counts as failed."""
WATCH_EVERY_S = 0.5
HUNG_AFTER_S = 3.0
"""A child that does not answer for this long hangs."""
LAST_CHANCE_S = 0.3
"""Then it is asked once more: if it was this process that stood still, the child answers at once."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run and how. `env` is merged over our own environment."""

    name: str
    argv: tuple[str, ...]
    log_path: Path | None
    """None: it inherits our stdout and stderr."""
    env: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], Awaitable[bool]] | None = None
    ready_timeout_s: float = 30.0
    is_alive: Callable[[], Awaitable[bool]] | None = None
    """Asks the child for a sign of life, once it is ready; None: it is not watched."""
    drain_s: float = DRAIN_S
    needs: frozenset[str] | None = None
    """Names of earlier children that must be stopped after it; None: all of them."""
    cwd: Path | None = None
    stdin_data: bytes = b""
    """What it reads from its standard input at every start."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """An unrequested exit. `returncode` is None when the program could not be started at all."""

    name: str
    pid: int | None
    returncode: int | None
    uptime_s: float
    restart_in_s: float
    was_hung: bool = False
    """It did not answer, and was killed."""


class Supervisor:
    """An async context manager; when it ends, all children are stopped, each before what it needs."""

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
            else:  # an error of the body propagates as it is, not wrapped in a group
                await self._tasks.__aexit__(None, None, None)

    async def start(self, child: ChildSpec) -> None:
        """Start `child` and wait until it is ready. Raises StartupError with the end of its log."""
        supervised = _SupervisedChild(child, clock=self._clock, backoff=Backoff(self._rng), on_exit=self._on_exit)
        task = self._tasks.create_task(supervised.run(), name=f"supervise {child.name}")
        self._children.append((supervised, task))
        await supervised.first_ready

    def signal_all(self, sig: signal.Signals) -> None:
        """Forward a signal to all running children."""
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    async def stop(self) -> None:
        """Stop all children concurrently, each as soon as those that need it have ended."""
        children = tuple(self._children)
        async with asyncio.TaskGroup() as stopping:
            for index, (child, task) in enumerate(children):
                dependents = [later_task for later, later_task in children[index + 1 :] if later.depends_on(child)]
                stopping.create_task(_stop_after(dependents, child, task))
        self._children = [entry for entry in self._children if entry not in children]

    def pids(self) -> dict[str, int]:
        """Of the running children, by name."""
        return {child.spec.name: child.pid for child, _ in self._children if child.pid is not None}


async def _stop_after(dependents: list[asyncio.Task[None]], child: _SupervisedChild, task: asyncio.Task[None]) -> None:
    if dependents:
        await asyncio.wait(dependents)
    child.stop_requested.set()
    await asyncio.wait({task})


class _SupervisedChild:
    """One child over all its restarts. Only the task that runs `run` touches its process."""

    def __init__(
        self, spec: ChildSpec, *, clock: Clock, backoff: Backoff, on_exit: Callable[[ChildExit], None]
    ) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_requested = asyncio.Event()
        self._clock = clock
        self._backoff = backoff
        self._on_exit = on_exit
        self._was_hung = False

    def depends_on(self, earlier: _SupervisedChild) -> bool:
        return self.spec.needs is None or earlier.spec.name in self.spec.needs

    async def run(self) -> None:
        """Start the child again and again until a stop is requested or its first start fails."""
        try:
            while await self._run_once():
                pass
        finally:
            self._fail_first_start("was stopped before it was ready")

    async def _run_once(self) -> bool:
        """From start to exit, and the back-off after it. False if there is no next start."""
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
        await self._report_and_back_off(process, uptime_s=self._clock.now_s() - started_s)
        return not self.stop_requested.is_set()

    async def _spawn(self) -> Process:
        spec = self.spec
        env = {**os.environ, **spec.env, PARENT_PID_ENV: str(os.getpid())}
        return await spawn(
            spec.argv,
            env=env,
            log_path=spec.log_path,
            death_signal=KILL,
            stdin_data=spec.stdin_data,
            cwd=spec.cwd,
        )

    async def _run_to_exit(self, process: Process) -> None:
        self.pid = process.pid
        self._was_hung = False
        try:
            if await self._becomes_ready(process):
                await self._wait_unless_stopped(self._exits_or_hangs(process))
            if self._was_hung and not self.stop_requested.is_set():
                kill_group(process)
            await stop_process(process, steps=((signal.SIGTERM, self.spec.drain_s),))
        finally:
            self.pid = None
            if process.returncode is None:  # this task was cancelled; later the pid may belong to another process
                kill_group(process)
                await exits_within(process, KILLED_WITHIN_S)

    async def _exits_or_hangs(self, process: Process) -> None:
        is_alive = self.spec.is_alive
        if is_alive is None:
            await process.wait()
            return
        while not await exits_within(process, WATCH_EVERY_S):
            if not await _answers(is_alive, HUNG_AFTER_S) and not await _answers(is_alive, LAST_CHANCE_S):
                self._was_hung = process.returncode is None
                return

    async def _becomes_ready(self, process: Process) -> bool:
        deadline_s = self._clock.now_s() + self.spec.ready_timeout_s
        while process.returncode is None and not self.stop_requested.is_set() and self._clock.now_s() < deadline_s:
            if await self._check_ready():
                if not self.first_ready.done():
                    self.first_ready.set_result(None)
                return True
            await self._wait_unless_stopped(sleep_until(self._clock, self._clock.now_s() + READY_POLL_S))
        why = "is not ready in time" if process.returncode is None else f"ended with status {process.returncode}"
        log_path = self.spec.log_path
        tail = "" if log_path is None else f" The end of {log_path}:\n{read_tail(log_path)}"
        self._fail_first_start(f"{why}.{tail}")
        return False

    async def _check_ready(self) -> bool:
        if self.spec.is_ready is None:
            return True
        try:
            async with asyncio.timeout(READY_CHECK_S):
                return await self.spec.is_ready()
        except OSError:  # not listening yet, or no answer in time
            return False

    def _fail_first_start(self, why: str) -> None:
        if not self.first_ready.done():
            self.first_ready.set_exception(StartupError(f"{self.spec.name} {why}"))

    async def _report_and_back_off(self, process: Process | None, *, uptime_s: float) -> None:
        pid, returncode = (None, None) if process is None else (process.pid, process.returncode)
        delay_s = self._backoff.next_delay_s(uptime_s=uptime_s)
        self._on_exit(
            ChildExit(
                self.spec.name,
                pid,
                returncode,
                uptime_s=uptime_s,
                restart_in_s=delay_s,
                was_hung=process is not None and self._was_hung,
            )
        )
        await self._wait_unless_stopped(sleep_until(self._clock, self._clock.now_s() + delay_s))

    async def _wait_unless_stopped(self, other: Coroutine[None, None, object]) -> None:
        """Wait for `other`, or until a stop of this child is requested."""
        tasks = {asyncio.create_task(other), asyncio.create_task(self.stop_requested.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


async def _answers(is_alive: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Whether the child gives a sign of life. One whose port is closed has ended, or is about to."""
    with contextlib.suppress(OSError):  # TimeoutError is one
        async with asyncio.timeout(within_s):
            return await is_alive()
    return False
