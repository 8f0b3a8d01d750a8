"""Implements LeaseRuntime with the engine of this machine. Decides; what it decides is done by the modules beside it.

A container is known by its name, which follows from node, lease and term, and by its labels. So a call that is made
twice finds what the first one did, and an agent that starts anew finds everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

from aiodocker.exceptions import DockerError

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime.ability import AbilityProof
from sparewatt.node.leases.runtime.container_spec import MachineSide
from sparewatt.node.leases.runtime.disk_watch import DiskWatch
from sparewatt.node.leases.runtime.egress_table import EgressTable, NftEgressTable, TableRefused
from sparewatt.node.leases.runtime.engine import ENGINE_S, ContainerEngine, find_socket, within
from sparewatt.node.leases.runtime.engine_containers import (
    EngineContainers,
    is_labelled,
    read_container,
)
from sparewatt.node.leases.runtime.image_pull import pull_image
from sparewatt.node.leases.runtime.lease_network import LeaseNetworks
from sparewatt.node.leases.runtime.model import (
    ContainerMissing,
    ContainerPlan,
    ContainerState,
    EngineUnavailable,
    LeaseContainer,
    LeaseLabel,
    LeaseRuntimeError,
    MachineUnable,
    PortUnreachable,
    RestartRule,
    RuntimeAbility,
    StartRefused,
)
from sparewatt.node.leases.runtime.naming import container_name
from sparewatt.node.leases.runtime.restarts import Restarts
from sparewatt.node.leases.runtime.runtime import ExecSession, ImageId, OnProgress, Output, TerminalSize
from sparewatt.node.leases.runtime.streams import EngineExec, LogPosition
from sparewatt.node.leases.runtime.vanished import VanishedPrograms

_log = Logger("sparewatt.node")
CONNECT_S = 5.0
ROUND_S = 0.5
"""Between two looks at the containers that are kept running."""
TABLE_EVERY_S = 5.0
"""Whoever reloads the host's firewall may flush our table: so soon it is back."""
LOG_LINES_MAX = 10_000


class DockerRuntime:
    def __init__(
        self,
        *,
        clock: Clock,
        rng: Rng,
        socket: Path | None = None,
        state_dir: Path | None = None,
        gpu_count: int = 0,
        table: EgressTable | None = None,
        proven: RuntimeAbility | None = None,
    ) -> None:
        """`socket`: the owner's choice; None: the usual places. `state_dir`: for what outlives the process. `proven`:
        found by another runtime on this machine, so that it is not tried again."""
        self._clock = clock
        self._socket = socket
        self._gpu_count = gpu_count
        self._rng = rng
        self._table: EgressTable = table or NftEgressTable()
        self._engine: ContainerEngine | None = None
        self._ability = proven
        self._proving = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._restarts = Restarts(rng=rng, folder=state_dir)
        self._disks = DiskWatch(used_bytes=self._used_bytes, pause=self._pause)
        self._vanished = VanishedPrograms()
        self._table_due_s = 0.0

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    async def ability(self, *, again: bool = False, on_progress: OnProgress | None = None) -> RuntimeAbility:
        async with self._proving:
            if self._ability is None or again:
                proof = AbilityProof(
                    open_engine=self._open,
                    table=self._table,
                    rng=self._rng,
                    clock=self._clock,
                    gpu_count=self._gpu_count,
                )
                self._ability = await proof.run(on_progress or (lambda _line: None))
            return self._ability

    async def pull(self, image: str, on_progress: OnProgress) -> ImageId:
        return await pull_image(self._open(), image, on_progress)

    async def start(self, plan: ContainerPlan) -> LeaseContainer:
        name = container_name(plan.label)
        ability = await self.ability()
        async with self._lock(name):
            found = await self.container(plan.label)
            if found is None:
                _check_plan(plan, ability)
                await self._make(plan, ability)
            elif found.state in (ContainerState.CREATED, ContainerState.EXITED):
                await self._hold_table(ability)
                await self._containers().start(name)
            self._keep(name, ability, restart=plan.restart, disk_mib=plan.disk_mib)
            return await self._expect(plan.label)

    async def adopt(self, label: LeaseLabel, *, restart: RestartRule, disk_mib: int) -> None:
        name, ability = container_name(label), await self.ability()
        async with self._lock(name):
            await self._expect(label)
            self._keep(name, ability, restart=restart, disk_mib=disk_mib)

    def _keep(self, name: str, ability: RuntimeAbility, *, restart: RestartRule, disk_mib: int) -> None:
        self._restarts.keep(name, restart)
        if ability.disk_kind == 0:
            self._disks.watch(name, disk_mib * MIB)

    async def _make(self, plan: ContainerPlan, ability: RuntimeAbility) -> None:
        """All of it, or nothing is left."""
        containers, networks = self._containers(), LeaseNetworks(self._open())
        try:
            await self._hold_table(ability)
            network = await networks.ensure(plan) if ability.egress else None
            await containers.create(plan, MachineSide(network=network, has_quota=ability.disk_kind == 1))
            await containers.start(container_name(plan.label))
        except (LeaseRuntimeError, asyncio.CancelledError):
            with suppress(EngineUnavailable):
                await asyncio.shield(self._discard(plan.label))
            raise

    async def _hold_table(self, ability: RuntimeAbility) -> None:
        if ability.egress:
            try:
                await self._table.hold()
            except TableRefused as refused:
                raise MachineUnable(f"the egress table cannot be installed: {refused}") from None

    async def stop(self, label: LeaseLabel, *, grace_s: float) -> None:
        name = container_name(label)
        async with self._lock(name):
            self._restarts.let_go(name)
            found = await self.container(label)
            if found is not None and found.state is ContainerState.PAUSED:
                await self._containers().unpause(name)
            if found is not None and found.state is not ContainerState.EXITED:
                await self._containers().stop(name, grace_s=grace_s)

    async def remove(self, label: LeaseLabel) -> None:
        name = container_name(label)
        async with self._lock(name):
            await self._discard(label)
            self._restarts.forget(name)
            self._disks.forget(name)
            self._vanished.forget(name)

    async def _discard(self, label: LeaseLabel) -> None:
        await self._containers().remove(container_name(label))
        await LeaseNetworks(self._open()).remove(label)

    async def pause(self, label: LeaseLabel) -> None:
        await self._expect(label)
        await self._pause(container_name(label))

    async def unpause(self, label: LeaseLabel) -> None:
        await self._expect(label)
        await self._containers().unpause(container_name(label))
        self._disks.unpaused(container_name(label))

    async def container(self, label: LeaseLabel) -> LeaseContainer | None:
        return await self._look(container_name(label), label)

    async def containers(self) -> list[LeaseContainer]:
        found = [await self._look(name) for name in await self._containers().names()]
        return [each for each in found if each is not None]

    async def _look(self, name: str, label: LeaseLabel | None = None) -> LeaseContainer | None:
        found = await self._containers().inspect(name)
        if found is None or (label is not None and not is_labelled(found, label)):
            return None
        self._vanished.note(name, found, now_s=self._clock.now_s())
        seen = read_container(found)
        return (
            None
            if seen is None or seen.state is ContainerState.GONE
            else replace(seen, restarts=self._restarts.count(name), is_disk_full=self._disks.is_full(name))
        )

    async def logs(self, label: LeaseLabel, *, follow: bool, tail: int) -> AsyncIterator[Output]:
        name, seen = container_name(label), await self._expect(label)
        parameters: dict[str, str | int] = {"follow": int(follow), "tail": min(max(tail, 0), LOG_LINES_MAX)}
        position = LogPosition(self._clock.unix_s())
        while True:
            try:
                async with self._open().logs(name, timestamps=1, **parameters) as reader:
                    async for output in position.read(reader):
                        yield output
            except (DockerError, OSError) as error:
                raise EngineUnavailable(f"the log broke off ({error})") from None
            if not follow or (again := await self._next_run(label, seen.started_unix_s)) is None:
                return
            # By the last line and not by the new start: a program may print before the engine notes that it runs.
            seen, parameters = again, {"follow": 1, "since": position.since}

    async def _next_run(self, label: LeaseLabel, run: float | None) -> LeaseContainer | None:
        """The container once it was started again; None if it is gone, or nobody will start it."""
        name = container_name(label)
        while (seen := await self.container(label)) is not None:
            if seen.started_unix_s != run and seen.state is not ContainerState.CREATED:
                return seen
            if seen.state is ContainerState.EXITED and not self._restarts.may_restart(name, seen):
                return None
            await self._sleep(ROUND_S)
        return None

    async def exec(
        self, label: LeaseLabel, command: Sequence[str], *, tty: bool, size: TerminalSize = (80, 24)
    ) -> ExecSession:
        await self._expect(label)
        engine = self._open()
        await engine.facts()
        try:
            async with within(ENGINE_S):
                made = await self._containers().handle(container_name(label)).exec(list(command), stdin=True, tty=tty)
        except DockerError as error:
            raise StartRefused(error.message) from None
        session = await EngineExec.open(engine.socket, made, api_version=engine.docker.api_version, is_tty=tty)
        if tty:
            await session.resize(size)
        return session

    async def connect(self, label: LeaseLabel, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        seen = await self._expect(label)
        if seen.address is None:
            raise PortUnreachable("the container does not run, or leases have no network here")
        try:
            async with asyncio.timeout(CONNECT_S):
                return await asyncio.open_connection(seen.address, port)
        except (OSError, TimeoutError) as error:
            raise PortUnreachable(f"nothing answers at port {port} ({str(error) or 'no answer in time'})") from None

    async def disk_used_bytes(self, label: LeaseLabel) -> int:
        await self._expect(label)
        return await self._used_bytes(container_name(label))

    async def run(self) -> None:
        trouble = ""
        while True:
            try:
                await self._round()
                trouble = ""
            except LeaseRuntimeError as error:
                if str(error) != trouble:  # said once, however long it lasts
                    _log.warning("container_round_failed", why=str(error))
                trouble = str(error)
            await self._sleep(ROUND_S)

    async def _round(self) -> None:
        for name in self._restarts.names():
            try:
                await self._tend(name)
            except (StartRefused, ContainerMissing) as error:  # the others are not to wait for this one
                _log.warning("container_not_tended", container=name, why=str(error))
        if self._restarts.names() and self._ability is not None and self._clock.now_s() >= self._table_due_s:
            self._table_due_s = self._clock.now_s() + TABLE_EVERY_S
            await self._hold_table(self._ability)

    async def _tend(self, name: str) -> None:
        seen = await self._look(name)
        if seen is not None and self._vanished.has_vanished(name, now_s=self._clock.now_s()):
            await self._remove_vanished(name, seen.label)
        elif seen is not None and self._restarts.is_due(name, seen, now_s=self._clock.now_s()):
            await self._start_again(name, seen.label)
        elif seen is not None and seen.state is ContainerState.RUNNING:
            await self._disks.look(name, now_s=self._clock.now_s())

    async def _remove_vanished(self, name: str, label: LeaseLabel) -> None:
        """Its engine cannot start it again, so whoever looks after the lease finds none, and makes another."""
        _log.warning("lease_program_vanished", lease=label.lease_id, term=label.term)
        async with self._lock(name):
            await self._containers().remove(name)
            self._vanished.forget(name)

    async def _start_again(self, name: str, label: LeaseLabel) -> None:
        async with self._lock(name):
            if name in self._restarts.names():
                self._restarts.restarted(name)
                await self._containers().start(name)
                _log.info("lease_program_restarted", lease=label.lease_id, restarts=self._restarts.count(name))

    async def _used_bytes(self, name: str) -> int:
        found = await self._containers().inspect(name, size=True)
        if found is None:
            raise ContainerMissing(f"there is no container {name}")
        return int(found.get("SizeRw") or 0) + await self._containers().volume_bytes(found)

    async def _pause(self, name: str) -> None:
        await self._containers().pause(name)

    async def _expect(self, label: LeaseLabel) -> LeaseContainer:
        if (seen := await self.container(label)) is None:
            raise ContainerMissing(f"lease {label.lease_id} has no container here")
        return seen

    async def _sleep(self, seconds: float) -> None:
        await sleep_until(self._clock, self._clock.now_s() + seconds)

    def _open(self) -> ContainerEngine:
        """Raises EngineMissing."""
        if self._engine is None:
            self._engine = ContainerEngine(find_socket(self._socket))
        return self._engine

    def _containers(self) -> EngineContainers:
        return EngineContainers(self._open())

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())


def _check_plan(plan: ContainerPlan, ability: RuntimeAbility) -> None:
    """Raises MachineUnable for what this machine cannot keep."""
    if not ability.limits:
        trouble = ability.troubles[0].what if ability.troubles else "limits do not hold"
        raise MachineUnable(f"no lease can be started here: {trouble}")
    if not ability.egress and (plan.egress or plan.ports or plan.agent_port):
        raise MachineUnable("leases have no network here: the egress table cannot be installed")
    if plan.gpu_ids and ability.gpus is None:
        raise MachineUnable("the container engine cannot give GPUs to containers")
