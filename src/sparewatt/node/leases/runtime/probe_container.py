"""A container of the static program, made as a lease's is, and gone when its block ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Network

from aiodocker.exceptions import DockerError

from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.container_spec import MachineSide
from sparewatt.node.leases.runtime.engine import ContainerEngine, within
from sparewatt.node.leases.runtime.engine_containers import EngineContainers, read_container
from sparewatt.node.leases.runtime.lease_network import LeaseNetworks
from sparewatt.node.leases.runtime.model import ContainerPlan, EngineUnavailable, LeaseLabel, StartRefused
from sparewatt.node.leases.runtime.naming import LeaseRange, container_name
from sparewatt.node.leases.runtime.streams import EngineExec, stream_frames

PROBE_NODE = "probe"
"""In place of a node's address: what it leaves behind, if an agent dies meanwhile, is known as nobody's lease."""
OUTPUT_BYTES_MAX = 65_536
PROBE_S = 30.0
NO_RANGE = LeaseRange(IPv4Network("0.0.0.0/30"))


class ProbeContainer:
    def __init__(
        self,
        engine: ContainerEngine,
        rng: Rng,
        *,
        memory_mib: int,
        cpu_milli: int = 1_000,
        pids_max: int = 16,
        disk_mib: int = 64,
        has_quota: bool = False,
        is_on_bridge: bool = False,
        gpu_ids: tuple[str, ...] = (),
    ) -> None:
        self._containers = EngineContainers(engine)
        self._networks = LeaseNetworks(engine)
        self._engine = engine
        self._has_quota = has_quota
        self._is_on_bridge = is_on_bridge
        self.plan = ContainerPlan(
            label=LeaseLabel(f"0x{rng.randbytes(16).hex()}", 0, 0, PROBE_NODE),
            image=probe_image.image_tag(),
            cpu_milli=cpu_milli,
            memory_mib=memory_mib,
            disk_mib=disk_mib,
            pids_max=pids_max,
            egress=True,
            agent_port=is_on_bridge,
            gpu_ids=gpu_ids,
        )

    @property
    def name(self) -> str:
        return container_name(self.plan.label)

    @asynccontextmanager
    async def running(self, tasks: Sequence[str]) -> AsyncIterator[LeaseRange]:
        """Gives its addresses; without a bridge they mean nothing. Raises StartRefused."""
        try:
            yield await self._start(tasks)
        finally:
            with suppress(EngineUnavailable):
                await asyncio.shield(self._remove())

    async def output(self) -> list[str]:
        """Lines of what it printed until it ended."""
        text = b""
        try:
            async with within(PROBE_S):
                await self._containers.handle(self.name).wait()
                async with self._engine.logs(self.name, follow=0) as reader:
                    async for _, piece in stream_frames(reader):
                        text += piece[: OUTPUT_BYTES_MAX - len(text)]
        except DockerError as error:
            raise EngineUnavailable(error.message) from None
        return text.decode(errors="replace").splitlines()

    async def execute(self, tasks: Sequence[str]) -> list[str]:
        """Lines of what a second run of the program prints in the same container."""
        text = b""
        try:
            async with within(PROBE_S):
                made = await self._containers.handle(self.name).exec([probe_image.PROGRAM, *tasks])
        except DockerError as error:
            raise StartRefused(error.message) from None
        version = self._engine.docker.api_version
        session = await EngineExec.open(self._engine.socket, made, api_version=version, is_tty=False)
        async with within(PROBE_S):
            while (output := await session.read()) is not None:
                text += output[1][: OUTPUT_BYTES_MAX - len(text)]
        await session.close()
        return text.decode(errors="replace").splitlines()

    async def _start(self, tasks: Sequence[str]) -> LeaseRange:
        plan = replace(self.plan, command=(probe_image.PROGRAM, *tasks))
        network = await self._networks.ensure(plan) if self._is_on_bridge else None
        await self._containers.create(plan, MachineSide(network=network, has_quota=self._has_quota))
        await self._containers.start(self.name)
        return network or NO_RANGE

    async def _remove(self) -> None:
        await self._containers.remove(self.name)
        if self._is_on_bridge:
            await self._networks.remove(self.plan.label)


async def sweep_probes(engine: ContainerEngine, *, before_unix_s: float) -> None:
    """Removes what an agent left that died while it tried. What another one is trying now stays."""
    containers, networks = EngineContainers(engine), LeaseNetworks(engine)
    for name in await containers.names():
        seen = read_container(await containers.inspect(name) or {})
        if seen is not None and seen.label.node == PROBE_NODE and (seen.started_unix_s or 0.0) < before_unix_s:
            await containers.remove(name)
            await networks.remove(seen.label)
