"""A node with a container engine in memory, and the gateway's tasks for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.clock import SystemClock, Timer
from sparewatt.core.rng import seeded
from sparewatt.machine.spawn import free_port
from sparewatt.node.leases.access.link_proxies import LinkProxies
from sparewatt.node.leases.access.link_proxy import GatewayAddress
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.folder import MachineFolder
from sparewatt.node.leases.machine.machine_account import MachineAccount
from sparewatt.node.leases.machine.shared_room import SharedRoom
from sparewatt.node.leases.placed.lease_files import LeaseFiles
from sparewatt.node.leases.placed.lease_runner import LeaseRunner
from sparewatt.node.leases.placed.lease_worker import LeaseTools, LeaseWorker
from sparewatt.node.leases.runtime.probe_image import PROGRAM
from sparewatt.protocol.contracts.lease_acts import ActContracts
from sparewatt.protocol.contracts.lease_content import LeaseContent, write_content
from sparewatt.protocol.contracts.sealed_secrets import SecretContext, named_secret, seal_secret
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport, LeaseTask, TaskState
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.memory_runtime import MemoryEngine, MemoryRuntime
from tests.unit.node.leases.lease_world import CHAIN_ID, NODE_KEY, ORDERS, PROVIDER, lookup, market, specification

IMAGE = "example/job:1"
SPEED = 50.0
GATEWAY = GatewayAddress.of("http://127.0.0.1:8484")
MOVES = "0x" + "9" * 40
CONTRACTS = ActContracts(CHAIN_ID, ORDERS, MOVES)
LASTING = (PROGRAM, "say", "hello", "wait", "1000000")


def task(
    *,
    command: tuple[str, ...] = LASTING,
    image: str = IMAGE,
    secrets: tuple[str, ...] = (),
    gateway: bool = False,
    **changes: Any,
) -> LeaseTask:
    document = LeaseContent(image=image, command=command, secrets=secrets, gateway=gateway or msgspec.UNSET)
    content = write_content(document)
    spec = specification(content, gpus=changes.pop("gpus", 0), secrets=len(secrets))
    ordered = lookup(spec=spec, content=content)
    made = LeaseTask(
        order_id=ordered.order_id,
        attempt=0,
        term=1,
        state=TaskState.PENDING,
        renter=ordered.renter,
        renter_nonce=ordered.renter_nonce,
        policy=ordered.policy,
        specification=ordered.specification,
        content=content,
        lease_moves=MOVES,
        rate_uusd=1_000_000,
        confirm_by=4_000_000_000,
        block_number=50,
    )
    return msgspec.structs.replace(made, **changes)


def seal(name: str, value: str, given: LeaseTask) -> str:
    context = SecretContext(bytes.fromhex(given.order_id[2:]), given.attempt, PROVIDER)
    sealed = seal_secret(
        named_secret(name, value),
        to_public_key=NODE_KEY.public_key,
        context=context,
        ephemeral=SigningKey.generate(rng=seeded(5)),
    )
    return "0x" + sealed.hex()


class FastClock(SystemClock):
    """A second passes in 20 ms, so that what is tried again later is seen to be."""

    def now_s(self) -> float:
        return SystemClock.now_s() * SPEED

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return super().call_later(delay_s / SPEED, callback)


async def nothing_to_free(_cards: tuple[str, ...]) -> None:
    """For a machine without inference."""


class Node:
    """An agent's part that runs leases. `engine` outlives it, as a real one does."""

    def __init__(self, folder: Path, engine: MemoryEngine) -> None:
        self.said: list[LeaseAct | LeaseReport] = []
        self.notes: list[str] = []
        self.offers = True
        self.accepts = True
        self.facts: MarketFacts | None = market()
        self.clock = FastClock()
        self.runtime = MemoryRuntime(engine, clock=self.clock, rng=seeded(1))
        whole = LeaseCapacity(gpus=2, cpu_milli=8_000, memory_mib=64_000, disk_mib=400_000)
        self.reservations = MachineAccount(
            folder=MachineFolder(folder.with_name(f"{folder.name}-machine")),
            node=NODE_KEY.address,
            clock=self.clock,
            notify=self.notes.append,
            machine=lambda: whole,
            is_offering=lambda: True,
        )
        self.proxies = LinkProxies(gateway=GATEWAY, ports=tuple, clock=self.clock, port=free_port())
        tools = LeaseTools(
            runtime=self.runtime,
            key=NODE_KEY,
            room=SharedRoom(
                account=self.reservations, whole=lambda: whole, cards=lambda: ("0", "1"), make_free=nothing_to_free
            ),
            files=LeaseFiles(folder),
            clock=self.clock,
            say=self.said.append,
            notify=self.notes.append,
            proxies=self.proxies,
            may_claim=lambda: self.offers,
            accepts_update=lambda _checked, _update: self.accepts,
        )
        self.runner = LeaseRunner(tools=tools, facts=lambda: self.facts)

    def acts(self) -> list[LeaseAct]:
        return [each for each in self.said if isinstance(each, LeaseAct)]

    def reports(self) -> list[LeaseReport]:
        return [each for each in self.said if isinstance(each, LeaseReport)]

    def worker(self, given: LeaseTask) -> LeaseWorker:
        return self.runner.workers[given.order_id]


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    await node.runner.restore()
    work = asyncio.create_task(node.runner.run())
    try:
        yield node
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110 (polls with a ceiling)
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(what) from None
