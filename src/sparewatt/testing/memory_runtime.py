"""A container runtime in memory, for tests of what is built on one. Passes the real one's contract suite.

A "container" is a task that does what the package's static program would (`native/probe.c`), as far as tests need it:
say, complain, env, size, echo, wait, exit, listen, write. Nothing is isolated and no limit holds but the disk's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.limits import MIB
from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime.disk_watch import DiskWatch
from sparewatt.node.leases.runtime.model import (
    ContainerMissing,
    ContainerPlan,
    ContainerState,
    ImageUnavailable,
    LeaseContainer,
    LeaseLabel,
    LeaseRuntimeError,
    MachineUnable,
    OutputStream,
    PortUnreachable,
    RestartRule,
    RuntimeAbility,
    StartRefused,
)
from sparewatt.node.leases.runtime.naming import container_name
from sparewatt.node.leases.runtime.probe_image import PROGRAM
from sparewatt.node.leases.runtime.restarts import Restarts
from sparewatt.node.leases.runtime.runtime import ExecSession, ImageId, OnProgress, Output, TerminalSize

ROUND_S = 0.05
STOPPED_EXIT_CODE = 137
_SESSION_CHUNKS = 1_024


@dataclass(slots=True, eq=False)
class _Program:
    """One run of the program: its output, and how it ends."""

    words: tuple[str, ...]
    env: dict[str, str]
    out: asyncio.Queue[Output | None]
    into: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_SESSION_CHUNKS))
    size: TerminalSize = (0, 0)
    is_running: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while it is paused."""
    ports: dict[int, int] = field(default_factory=dict)
    """Ports of the container, and where they really are."""
    written_bytes: int = 0

    async def run(self) -> int:
        words = iter(self.words[1:])
        for task in words:
            await self.is_running.wait()
            if task == "exit":
                return int(next(words))
            if (line := self._line(task, words)) is not None:
                self._put("stderr" if task == "complain" else "stdout", line)
            elif not await self._wait(task, words):
                return 2
        return 0

    def _line(self, task: str, words: Iterator[str]) -> str | None:
        """What a task prints that takes no time; None for any other."""
        match task:
            case "say" | "complain":
                return next(words)
            case "env":
                name = next(words)
                return f"env {name}={self.env[name]}" if name in self.env else "env "
            case "size":
                return f"size {self.size[0]} {self.size[1]}"
            case "write":
                _, mib = next(words), int(next(words))
                self.written_bytes += mib * MIB
                return f"write {mib} 0"
        return None

    async def _wait(self, task: str, words: Iterator[str]) -> bool:
        """A task that takes its time. False if there is no such task."""
        match task:
            case "echo":
                while (data := await self.into.get()) is not None:
                    self.out.put_nowait(("stdout", data))
            case "wait":
                await asyncio.sleep(int(next(words)) / 1_000)
                self._put("stdout", "wait")
            case "listen":
                await self._listen(int(next(words)))
            case _:
                return False
        return True

    def _put(self, stream: OutputStream, text: str) -> None:
        self.out.put_nowait((stream, f"{text}\n".encode()))

    async def _listen(self, port: int) -> None:
        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"probe\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        self.ports[port] = server.sockets[0].getsockname()[1]
        self._put("stdout", f"listen {port}")
        async with server:
            await server.serve_forever()


@dataclass(slots=True, eq=False)
class _MemoryContainer:
    plan: ContainerPlan
    seen: LeaseContainer
    program: _Program
    task: asyncio.Task[None] | None = None
    lines: list[Output] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class MemoryEngine:
    """What outlives a runtime: containers, and images."""

    def __init__(self, *, images: Sequence[str] = ()) -> None:
        self.images = set(images)
        self.containers: dict[str, _MemoryContainer] = {}
        self.ids = count(1)

    async def close(self) -> None:
        for each in self.containers.values():
            if each.task is not None:
                each.task.cancel()
                await asyncio.wait([each.task])


class MemorySession:
    """Implements ExecSession."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> int:
        code = await self._program.run()
        self._program.out.put_nowait(None)
        return code

    async def read(self) -> Output | None:
        if self._task.done() and self._program.out.empty():
            return None
        return await self._program.out.get()

    async def write(self, data: bytes) -> None:
        if self._task.done():
            raise LeaseRuntimeError("the command has ended")
        await self._program.into.put(data)

    async def write_eof(self) -> None:
        await self._program.into.put(None)

    async def resize(self, size: TerminalSize) -> None:
        self._program.size = size

    async def exit_code(self) -> int | None:
        return self._task.result() if self._task.done() else None

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


class MemoryRuntime:
    """Implements LeaseRuntime."""

    def __init__(self, engine: MemoryEngine, *, clock: Clock, rng: Rng, can: RuntimeAbility | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self.can = can or RuntimeAbility(engine="memory 1", socket="memory", limits=True, egress=True)
        self._restarts = Restarts(rng=rng)
        self._disks = DiskWatch(used_bytes=self._used_bytes, pause=self._pause)

    async def close(self) -> None:
        """Containers run on, as the engine's do."""

    async def ability(self, *, again: bool = False, on_progress: OnProgress | None = None) -> RuntimeAbility:
        del again
        if on_progress is not None:
            on_progress("nothing to try")
        return self.can

    async def pull(self, image: str, on_progress: OnProgress) -> ImageId:
        on_progress(image)
        if image not in self._engine.images:
            raise ImageUnavailable(f"{image} cannot be pulled: there is no registry")
        return ImageId(f"memory:{image}")

    async def start(self, plan: ContainerPlan) -> LeaseContainer:
        name = container_name(plan.label)
        found = self._engine.containers.get(name)
        if found is None:
            found = self._make(plan)
            self._engine.containers[name] = found
        if found.seen.state in (ContainerState.CREATED, ContainerState.EXITED):
            self._begin(found)
        self._restarts.keep(name, plan.restart)
        self._disks.watch(name, plan.disk_mib * MIB)
        return await self._expect(plan.label)

    async def adopt(self, label: LeaseLabel, *, restart: RestartRule, disk_mib: int) -> None:
        await self._expect(label)
        self._restarts.keep(container_name(label), restart)
        self._disks.watch(container_name(label), disk_mib * MIB)

    def _make(self, plan: ContainerPlan) -> _MemoryContainer:
        if not self.can.limits:
            raise MachineUnable("no lease can be started here")
        if plan.image not in self._engine.images:
            raise ImageUnavailable(f"{plan.image} is not on this machine")
        if plan.command[:1] != (PROGRAM,):
            raise StartRefused(f"there is no program {plan.command[:1]}")
        seen = LeaseContainer(
            container_id=f"{next(self._engine.ids):064x}",
            label=plan.label,
            state=ContainerState.CREATED,
            content=plan.content,
        )
        return _MemoryContainer(plan, seen, self._program(plan, ()))

    @staticmethod
    def _program(plan: ContainerPlan, words: Sequence[str], *, size: TerminalSize = (0, 0)) -> _Program:
        program = _Program(tuple(words) or plan.command, dict(plan.env), asyncio.Queue(), size=size)
        program.is_running.set()
        return program

    def _begin(self, container: _MemoryContainer) -> None:
        written = container.program.written_bytes
        container.program = self._program(container.plan, ())
        container.program.written_bytes = written
        container.seen = replace(
            container.seen,
            state=ContainerState.RUNNING,
            address="127.0.0.1",
            host_address="127.0.0.1",
            started_unix_s=self._clock.unix_s(),
            ended_unix_s=None,
            exit_code=None,
        )
        container.task = asyncio.create_task(self._run_program(container))

    async def _run_program(self, container: _MemoryContainer) -> None:
        collecting = asyncio.create_task(_collect(container))
        code = STOPPED_EXIT_CODE
        try:
            code = await container.program.run()
        finally:
            container.program.out.put_nowait(None)
            with suppress(asyncio.CancelledError):
                await collecting
            self._end(container, code)

    def _end(self, container: _MemoryContainer, code: int) -> None:
        container.seen = replace(
            container.seen,
            state=ContainerState.EXITED,
            address=None,
            host_address=None,
            exit_code=code,
            ended_unix_s=self._clock.unix_s(),
        )
        container.news.set()

    async def stop(self, label: LeaseLabel, *, grace_s: float) -> None:
        del grace_s
        self._restarts.let_go(container_name(label))
        found = self._engine.containers.get(container_name(label))
        if found is not None and found.task is not None:
            found.task.cancel()
            await asyncio.wait([found.task])
            if found.seen.state is not ContainerState.EXITED:  # it had not begun
                self._end(found, STOPPED_EXIT_CODE)

    async def remove(self, label: LeaseLabel) -> None:
        await self.stop(label, grace_s=0)
        name = container_name(label)
        self._restarts.forget(name)
        self._disks.forget(name)
        if (found := self._engine.containers.pop(name, None)) is not None:
            found.news.set()

    async def pause(self, label: LeaseLabel) -> None:
        await self._expect(label)
        await self._pause(container_name(label))

    async def _pause(self, name: str) -> None:
        found = self._engine.containers[name]
        if found.seen.state is ContainerState.RUNNING:
            found.program.is_running.clear()
            found.seen = replace(found.seen, state=ContainerState.PAUSED)

    async def unpause(self, label: LeaseLabel) -> None:
        await self._expect(label)
        found = self._engine.containers[container_name(label)]
        if found.seen.state is ContainerState.PAUSED:
            found.seen = replace(found.seen, state=ContainerState.RUNNING)
            found.program.is_running.set()
        self._disks.unpaused(container_name(label))

    async def container(self, label: LeaseLabel) -> LeaseContainer | None:
        name = container_name(label)
        return self._shown(name) if name in self._engine.containers else None

    async def containers(self) -> list[LeaseContainer]:
        return [self._shown(name) for name in self._engine.containers]

    def _shown(self, name: str) -> LeaseContainer:
        seen = self._engine.containers[name].seen
        return replace(seen, restarts=self._restarts.count(name), is_disk_full=self._disks.is_full(name))

    async def logs(self, label: LeaseLabel, *, follow: bool, tail: int) -> AsyncIterator[Output]:
        await self._expect(label)
        name = container_name(label)
        container = self._engine.containers[name]
        at = max(0, len(container.lines) - tail)
        while True:
            for output in container.lines[at:]:
                at += 1
                yield output
            seen = container.seen
            is_over = seen.state is ContainerState.EXITED and not self._restarts.may_restart(name, seen)
            if not follow or is_over or name not in self._engine.containers:
                return
            container.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await container.news.wait()

    async def exec(
        self, label: LeaseLabel, command: Sequence[str], *, tty: bool, size: TerminalSize = (80, 24)
    ) -> ExecSession:
        seen = await self._expect(label)
        if seen.state is not ContainerState.RUNNING:
            raise StartRefused("the container does not run")
        plan = self._engine.containers[container_name(label)].plan
        return MemorySession(self._program(plan, command, size=size if tty else (0, 0)))

    async def connect(self, label: LeaseLabel, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await self._expect(label)
        real = self._engine.containers[container_name(label)].program.ports.get(port)
        if real is None:
            raise PortUnreachable(f"nothing answers at port {port}")
        return await asyncio.open_connection("127.0.0.1", real)

    async def disk_used_bytes(self, label: LeaseLabel) -> int:
        await self._expect(label)
        return await self._used_bytes(container_name(label))

    async def _used_bytes(self, name: str) -> int:
        return self._engine.containers[name].program.written_bytes

    async def run(self) -> None:
        while True:
            for name in self._restarts.names():
                await self._tend(name)
            await sleep_until(self._clock, self._clock.now_s() + ROUND_S)

    async def _tend(self, name: str) -> None:
        found = self._engine.containers.get(name)
        if found is not None and self._restarts.is_due(name, found.seen, now_s=self._clock.now_s()):
            self._restarts.restarted(name)
            self._begin(found)
        elif found is not None and found.seen.state is ContainerState.RUNNING:
            await self._disks.look(name, now_s=self._clock.now_s())

    async def _expect(self, label: LeaseLabel) -> LeaseContainer:
        if (seen := await self.container(label)) is None:
            raise ContainerMissing(f"lease {label.lease_id} has no container here")
        return seen


async def _collect(container: _MemoryContainer) -> None:
    while (output := await container.program.out.get()) is not None:
        container.lines.append(output)
        container.news.set()
