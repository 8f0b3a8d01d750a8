"""A machine with cards between its two markets: what is offered, what is stopped for a lease, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.lease_service import LeaseService
from sparewatt.node.leases.machine.card_users import StoppableServer
from sparewatt.node.leases.machine.machine_market import InferencePart
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.protocol.signing import SigningKey
from tests.unit.node.leases.machine.agents import key
from tests.unit.node.rig import node_settings
from tests.waiting import until

CARD = DetectedGpu("nvidia", "NVIDIA GeForce RTX 4090", 24 * 10**9)
ONE = LeaseCapacity(gpus=1, cpu_milli=100, memory_mib=1, disk_mib=1)


class Server:
    """Implements Inference, and is what sits on the cards."""

    def __init__(self, *cards: str) -> None:
        self.cards = frozenset(cards)
        self.used = self.cards
        self.order: str | None = None

    def stop_taking(self, order_id: str) -> None:
        self.order = order_id

    def break_off(self, order_id: str) -> int:
        return 0

    def take_again(self) -> None:
        self.order = None

    async def stop(self) -> None:
        self.used = frozenset()

    async def start(self) -> None:
        self.used = self.cards


def agent(folder: Path, server: Server, *, number: int = 1, cards: int = 2, own: bool = False) -> LeaseService:
    """`own`: it runs the server itself. Agents in one folder are of one machine."""
    settings = node_settings(folder / str(number), leases=True, machine_dir=folder / "machine")
    stoppable = StoppableServer(data_dir=settings.data_dir, url="http://here", stop=server.stop, start=server.start)
    hardware = Hardware(
        gpu=CARD.model, gpu_count=cards, vram_bytes=cards * 24 * 10**9, tflops=80.0, gpus=(CARD,) * cards
    )
    settings.data_dir.mkdir(exist_ok=True)
    return LeaseService(
        hardware,
        settings=settings,
        key=SigningKey(number.to_bytes(32, "big")),
        clock=SystemClock(),
        rng=seeded(number),
        notify=lambda _: None,
        current_settings=lambda: settings,
        is_paused=lambda: False,
        inference=InferencePart(
            inference=server,
            used_cards=lambda: server.used,
            is_local=True,
            own_server=stoppable if own else None,
            url="http://here",
        ),
    )


@asynccontextmanager
async def running(service: LeaseService) -> AsyncIterator[LeaseService]:
    await service.restore()
    work = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def offered_gpus(service: LeaseService) -> int:
    service.market.account.look()
    return service.offer(node_settings(Path("x"))).gpus


@pytest.mark.parametrize(
    ("used", "own", "commands", "offered"),
    [((), False, False, 2), (("0",), False, False, 1), (("0",), True, False, 2), (("0", "1"), False, True, 2)],
)
def test_a_card_is_offered_if_it_can_be_handed_over(
    tmp_path: Path,
    used: tuple[str, ...],
    own: bool,  # noqa: FBT001
    commands: bool,  # noqa: FBT001
    offered: int,
) -> None:
    service = agent(tmp_path, Server(*used), own=own)
    if commands:
        service.set_rules(LeaseRules(free_command="true", restore_command="true"))
    assert offered_gpus(service) == offered


def test_a_card_that_another_agents_server_sits_on_is_not_offered(tmp_path: Path) -> None:
    server = Server("0")
    first, second = agent(tmp_path, server, own=True), agent(tmp_path, server, number=2, own=True)
    assert offered_gpus(first) == 2
    assert offered_gpus(second) == 1


async def test_its_own_server_leaves_the_only_card_and_comes_back(tmp_path: Path) -> None:
    server = Server("0")
    async with running(agent(tmp_path, server, cards=1, own=True)) as service:
        room = service.market.room()
        assert await room.take(key(1), ONE, term=1) == ("0",)
        assert server.order == "0x" + key(1)[0].hex()
        assert not server.used
        server.used = frozenset("0")  # the lease's program
        assert offered_gpus(service) == 0
        server.used = frozenset()
        await room.give_back(key(1))
        await until(lambda: server.order is None)
        assert server.used == {"0"}


async def test_a_lease_of_a_free_card_leaves_inference_alone(tmp_path: Path) -> None:
    server = Server("0")
    async with running(agent(tmp_path, server, own=True)) as service:
        service.market.account.look()
        assert await service.market.room().take(key(1), ONE, term=1) == ("1",)
        assert (server.order, server.used) == (None, server.cards)


async def test_commands_of_the_owner_free_a_card_and_failing_ones_start_nothing(tmp_path: Path) -> None:
    marks: dict[str, Any] = {name: tmp_path / name for name in ("freed", "restored")}
    server = Server("0")
    async with running(agent(tmp_path, server, cards=1)) as service:
        rules = LeaseRules(free_command=f"touch {marks['freed']}", restore_command=f"touch {marks['restored']}")
        service.set_rules(rules)
        taking = asyncio.create_task(service.market.room().take(key(1), ONE, term=1))
        await until(marks["freed"].exists)
        server.used = frozenset()
        assert await taking == ("0",)
        await service.market.room().give_back(key(1))
        await until(marks["restored"].exists)
        service.set_rules(LeaseRules(free_command="false", restore_command="true"))
        server.used = frozenset("0")
        service.market.account.look()
        with pytest.raises(NoRoom, match="could not be stopped"):
            await service.market.room().take(key(2), ONE, term=1)


async def test_what_is_kept_for_a_claim_disturbs_no_answer_until_it_is_taken(tmp_path: Path) -> None:
    server = Server("0")
    async with running(agent(tmp_path, server, cards=1, own=True)) as service:
        room = service.market.room()
        room.keep(key(1), ONE)
        room.keep(key(1), ONE)
        assert server.order is None
        with pytest.raises(NoRoom):
            room.keep(key(2), ONE)
        await room.take(key(1), ONE, term=2)
        assert server.order is not None


def test_a_command_without_its_counterpart_is_refused(tmp_path: Path) -> None:
    service = agent(tmp_path, Server())
    with pytest.raises(Exception, match="go together"):
        service.set_rules(LeaseRules(free_command="true"))
