"""A lease whose part of the machine is not free when it is needed: it is tried again, and nothing else suffers."""

from __future__ import annotations

from pathlib import Path

from sparewatt.node.leases.machine.shared_room import SharedRoom
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.testing.memory_runtime import MemoryEngine
from tests.unit.node.leases.placed.placed_world import IMAGE, Node, running, task, until


class Stubborn:
    """Something that sits on a card, and leaves late."""

    def __init__(self, *, refusals: range) -> None:
        self.asked = 0
        self._refusals = refusals

    async def leave(self, _cards: tuple[str, ...]) -> None:
        self.asked += 1
        if self.asked in self._refusals:
            raise NoRoom("something else still sits on the GPU 0")


def sit(node: Node, there: Stubborn) -> None:
    room = node.runner.tools.room
    assert isinstance(room, SharedRoom)
    room.make_free = there.leave


async def test_a_start_waits_for_what_sits_on_its_card(tmp_path: Path) -> None:
    async with running(Node(tmp_path, MemoryEngine(images=[IMAGE]))) as node:
        sit(node, Stubborn(refusals=range(1, 2)))
        given = task()
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "it was never started")


async def test_a_lease_that_is_only_held_waits_too(tmp_path: Path) -> None:
    async with running(Node(tmp_path, MemoryEngine(images=[IMAGE]))) as node:
        there = Stubborn(refusals=range(2, 4))
        sit(node, there)
        node.runner.on_task(task(image="example/missing:1"))
        await until(lambda: bool(node.acts()), "it was never confirmed")
        assert there.asked >= 4
