"""The two container runtimes that pass one suite: podman's, with an engine of its own, and the one in memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.docker_runtime import DockerRuntime
from sparewatt.node.leases.runtime.egress_table import NftEgressTable
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseContainer, LeaseLabel, RuntimeAbility
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.testing.memory_runtime import MemoryEngine, MemoryRuntime
from tests.podman import podman_service, why_not
from tests.waiting import CEILING_S

TABLE = f"sparewatt_test_{os.getpid()}"
NODE = "0x00000000000000000000000000000000000000aa"
_numbers = count(1)


@dataclass(slots=True)
class RuntimeRig:
    """One runtime, how to make another on the same engine, and the leases of a test."""

    runtime: LeaseRuntime
    anew: Callable[[], LeaseRuntime]
    labels: list[LeaseLabel] = field(default_factory=list)

    def plan(self, *tasks: str, **changes: Any) -> ContainerPlan:
        """For the static program, with these tasks."""
        label = LeaseLabel(f"0x{os.getpid():032x}{next(_numbers):032x}", 1, 1, NODE)
        self.labels.append(label)
        usual: dict[str, Any] = {
            "image": probe_image.image_tag(),
            "cpu_milli": 1_000,
            "memory_mib": 64,
            "disk_mib": 64,
            "egress": True,
        }
        return ContainerPlan(label=label, command=(probe_image.PROGRAM, *tasks), **(usual | changes))

    async def start(self, *tasks: str, **changes: Any) -> LeaseContainer:
        return await self.runtime.start(self.plan(*tasks, **changes))

    async def until(self, label: LeaseLabel, holds: Callable[[LeaseContainer], object]) -> LeaseContainer:
        """The container, once that is so of it."""
        async with asyncio.timeout(2 * CEILING_S):
            while True:
                if (seen := await self.runtime.container(label)) is not None and holds(seen):
                    return seen
                await asyncio.sleep(0.05)

    async def output(self, label: LeaseLabel, *, stream: str = "stdout") -> list[str]:
        """All lines until now."""
        pieces = [data async for name, data in self.runtime.logs(label, follow=False, tail=1_000) if name == stream]
        return b"".join(pieces).decode().splitlines()

    async def printed(self, label: LeaseLabel) -> list[str]:
        """All lines, once there are any."""
        async with asyncio.timeout(2 * CEILING_S):
            async for _, data in self.runtime.logs(label, follow=True, tail=1_000):
                return data.decode().splitlines()
        return []

    async def execute(self, label: LeaseLabel, *tasks: str) -> list[str]:
        """Lines of a second run of the program in the same container."""
        session = await self.runtime.exec(label, [probe_image.PROGRAM, *tasks], tty=False)
        text = b""
        async with asyncio.timeout(2 * CEILING_S):
            while (output := await session.read()) is not None:
                text += output[1]
        await session.close()
        return text.decode().splitlines()


@asynccontextmanager
async def _rig(runtime: LeaseRuntime, anew: Callable[[], LeaseRuntime]) -> AsyncIterator[RuntimeRig]:
    rig = RuntimeRig(runtime, anew)
    tending = asyncio.create_task(runtime.run())
    try:
        yield rig
    finally:
        tending.cancel()
        with suppress(asyncio.CancelledError):
            await tending
        for label in rig.labels:
            await runtime.remove(label)
        await runtime.close()


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of an engine that this session has for itself; or of another one, such as Docker's, by a variable."""
    given = os.environ.get("CONTAINER_TEST_SOCKET")
    if given is None and (reason := why_not()):
        pytest.skip(reason)
    try:
        with nullcontext(Path(given)) if given else podman_service(tmp_path_factory.mktemp("podman")) as socket:
            yield socket
    finally:
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


@pytest.fixture(scope="session")
def proven(podman: Path) -> RuntimeAbility:
    """By trying, once for all tests."""

    async def prove() -> RuntimeAbility:
        runtime = podman_runtime(podman)
        try:
            return await runtime.ability()
        finally:
            await runtime.close()

    with ThreadPoolExecutor(1) as thread:  # this one may run a loop already
        return thread.submit(lambda: asyncio.run(prove())).result()


def podman_runtime(socket: Path, proven: RuntimeAbility | None = None) -> DockerRuntime:
    table = NftEgressTable(table=TABLE)
    return DockerRuntime(clock=SystemClock(), rng=SystemRng(), socket=socket, table=table, proven=proven)


@pytest.fixture
async def real(podman: Path, proven: RuntimeAbility) -> AsyncIterator[RuntimeRig]:
    async with _rig(podman_runtime(podman, proven), lambda: podman_runtime(podman, proven)) as rig:
        yield rig


@pytest.fixture(params=["memory", "podman"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[RuntimeRig]:
    if request.param == "podman":
        socket, proven = request.getfixturevalue("podman"), request.getfixturevalue("proven")
        runtime: LeaseRuntime = podman_runtime(socket, proven)
        async with _rig(runtime, lambda: podman_runtime(socket, proven)) as rig:
            yield rig
        return
    engine = MemoryEngine(images=[probe_image.image_tag()])

    def make() -> MemoryRuntime:
        return MemoryRuntime(engine, clock=SystemClock(), rng=SystemRng())

    async with _rig(make(), make) as rig:
        yield rig
    await engine.close()
