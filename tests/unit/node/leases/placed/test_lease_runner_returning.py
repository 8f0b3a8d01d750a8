"""An agent that comes back: what it finds running, what has moved meanwhile, and whom it believes about that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.node.leases.chain_check import ChainDiffers
from sparewatt.node.leases.placed.task_check import label_of
from sparewatt.node.leases.runtime.model import ContainerState, EngineUnavailable
from sparewatt.node.leases.runtime.probe_image import PROGRAM
from sparewatt.protocol.link.lease_frames import HeldLease, MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask, TaskState
from sparewatt.testing.memory_runtime import MemoryEngine
from tests.unit.node.leases.lease_world import NODE_KEY, market
from tests.unit.node.leases.placed.placed_world import IMAGE, Node, running, task, until


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(images=[IMAGE])


async def a_lease(folder: Path, engine: MemoryEngine, **changes: Any) -> LeaseTask:
    """That ran when its agent ended."""
    given = task(**changes)
    async with running(Node(folder, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
    return given


async def restored(folder: Path, engine: MemoryEngine) -> Node:
    """An agent whose workers do not run: a test looks at each step."""
    node = Node(folder, engine)
    await node.runner.restore()
    return node


def forget(folder: Path) -> None:
    """What the agent had stored."""
    for path in folder.rglob("*.json"):
        path.unlink()


def at(block: int, *held: HeldLease) -> MarketFacts:
    return market(held=held, block_number=block)


async def test_a_program_that_ends_after_its_agent_came_back_is_started_again(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    given = await a_lease(tmp_path, engine, command=(PROGRAM, "wait", "300", "exit", "1"))
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(msgspec.structs.replace(given, state=TaskState.ACTIVE, block_number=51))
        label = label_of(given, node=NODE_KEY.address)
        await until(lambda: node.runtime._restarts.count(_name(engine)) > 0, "its program is not started again")
        found = await node.runtime.container(label)
        assert found is not None
    await engine.close()


async def test_before_a_gateway_has_spoken_nothing_is_started_again(tmp_path: Path, engine: MemoryEngine) -> None:
    given = await a_lease(tmp_path, engine, command=(PROGRAM, "exit", "1"))
    node = await restored(tmp_path, engine)
    await node.worker(given)._look()
    (found,) = await node.runtime.containers()
    assert (found.state, node.runtime._restarts.names()) == (ContainerState.EXITED, ())
    await engine.close()


async def test_validators_can_be_told_before_any_gateway_has_spoken(tmp_path: Path, engine: MemoryEngine) -> None:
    """An agent that starts anew while its gateway is away has to be heard, or its lease moves."""
    assert Node(tmp_path, engine).runner.stored_facts() is None
    given = await a_lease(tmp_path, engine)
    node = await restored(tmp_path, engine)
    assert node.runner.stored_facts() == market()
    node.worker(given).end(at(60))
    assert node.runner.stored_facts() is None
    await engine.close()


async def test_a_lease_that_moved_while_the_agent_was_away_is_removed_after_two_blocks(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    """Also if the gateway does not know any more that this node ever had it."""
    await a_lease(tmp_path, engine)
    async with running(Node(tmp_path, engine)) as node:
        node.facts = None
        await node.runner.reconcile()
        node.facts = market(held=None, block_number=60)
        await node.runner.reconcile()
        node.facts = at(50)
        await node.runner.reconcile()
        node.facts = at(60)
        await node.runner.reconcile()
        await node.runner.reconcile()
        assert engine.containers, "one block may be behind"
        node.facts = at(61)
        await node.runner.reconcile()
        await until(lambda: not engine.containers and not node.runner.workers, "it is still there")
        assert node.reservations.entries() == {}


async def test_a_lease_that_is_there_again_at_the_next_block_stays(tmp_path: Path, engine: MemoryEngine) -> None:
    given = await a_lease(tmp_path, engine)
    async with running(Node(tmp_path, engine)) as node:
        for block in range(60, 66):
            node.facts = at(block) if block % 2 else at(block, HeldLease(given.order_id, 1))
            await node.runner.reconcile()
        assert given.order_id in node.runner.workers
        assert engine.containers
    await engine.close()


@pytest.mark.parametrize("says", ["here", "nothing"])
async def test_the_owners_chain_has_the_last_word_on_an_end(tmp_path: Path, engine: MemoryEngine, says: str) -> None:
    """The lie: a gateway that says a lease is over. And a chain that cannot be seen says nothing."""
    given = await a_lease(tmp_path, engine)
    node = await restored(tmp_path, engine)

    async def placed_term(order_id: bytes, facts: MarketFacts) -> int | None:
        assert (order_id.hex(), facts.chain_id) == (given.order_id[2:], market().chain_id)
        if says == "nothing":
            raise ChainDiffers("its own chain does not answer")
        return 1 if says == "here" else None

    worker = node.worker(given)
    worker.tools = node.runner.tools = replace(node.runner.tools, placed_term=placed_term)
    worker.end(at(60))
    await worker._look()
    assert (len(engine.containers), worker.is_done) == (1, False)
    assert worker.trouble is not None
    says = "over"
    await worker._look()
    assert (len(engine.containers), worker.is_done) == (0, True)


async def test_a_container_without_a_lease_stays_while_the_owners_chain_cannot_be_seen(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    await a_lease(tmp_path, engine)
    forget(tmp_path)
    node = await restored(tmp_path, engine)

    async def placed_term(order_id: bytes, facts: MarketFacts) -> int | None:
        raise ChainDiffers("its own chain does not answer")

    node.runner.tools = replace(node.runner.tools, placed_term=placed_term)
    for block in (60, 61, 62):
        node.facts = at(block)
        await node.runner.reconcile()
    assert engine.containers
    await engine.close()


async def test_an_engine_that_does_not_answer_is_no_end_of_anything(
    tmp_path: Path, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = await a_lease(tmp_path, engine)
    node = await restored(tmp_path, engine)
    worker = node.worker(given)

    async def away(*_args: object) -> None:
        raise EngineUnavailable("no socket")

    with monkeypatch.context() as patched:
        patched.setattr(node.runtime, "container", away)
        patched.setattr(node.runtime, "containers", away)
        worker.end(at(60))
        await worker._look()
        assert not worker.is_done
        assert node.runner.held() == [], "but what the chain has elsewhere is not said to be held"
        node.facts = at(61)
        node.runner.workers.clear()
        with pytest.raises(EngineUnavailable):
            await node.runner.reconcile()
    assert engine.containers
    await engine.close()


def _name(engine: MemoryEngine) -> str:
    return next(iter(engine.containers))
