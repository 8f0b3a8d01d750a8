"""Leases on a node whose containers are in memory: from a task to a program that runs, and to a free machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from sparewatt.node.leases.placed.lease_runner import QUIET_CHAIN_S
from sparewatt.node.leases.placed.steps import RENTER_MARGIN_S
from sparewatt.node.leases.placed.task_check import GATEWAY_VARIABLE, label_of
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer, StartRefused
from sparewatt.node.leases.runtime.probe_image import PROGRAM
from sparewatt.node.leases.runtime.runtime import ImageId, OnProgress
from sparewatt.protocol.contracts.lease_acts import is_signed_by
from sparewatt.protocol.contracts.lease_content import LeaseContent, content_hash_of, write_content
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.link.lease_frames import HeldLease
from sparewatt.protocol.link.lease_tasks import (
    ActKind,
    LeaseDetailsDocument,
    LeaseTask,
    ProgramPhase,
    ProposedUpdate,
    TaskState,
)
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.testing.memory_runtime import MemoryEngine
from tests.unit.node.leases.lease_world import NODE_KEY, market
from tests.unit.node.leases.placed.placed_world import CONTRACTS, IMAGE, Node, running, seal, task, until


def later(given: LeaseTask, state: TaskState, **changes: object) -> LeaseTask:
    return msgspec.structs.replace(given, state=state, block_number=given.block_number + 1, **changes)


def details(text: str) -> LeaseDetailsDocument:
    return msgspec.json.decode(text, type=LeaseDetailsDocument)


def stored(folder: Path) -> list[Path]:
    return list(folder.rglob("*.json"))


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(images=[IMAGE])


async def shown(node: Node, given: LeaseTask) -> ContainerState | None:
    found = await node.runtime.container(label_of(given, node=NODE_KEY.address))
    return found.state if found is not None else None


async def test_a_lease_is_started_and_confirmed_by_the_nodes_key(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task(acts_nonce=3)
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        act = node.acts()[0]
        assert (act.kind, act.term, act.nonce, act.deadline) == (ActKind.CONFIRM, 1, 3, given.confirm_by)
        assert is_signed_by(NODE_KEY.address, act, contracts=CONTRACTS)
        assert details(act.details).started
        assert await shown(node, given) is ContainerState.RUNNING
        assert node.runner.held() == [(bytes.fromhex(given.order_id[2:]), 1)]
        await until(lambda: node.reports()[-1].phase is ProgramPhase.RUNNING, "the program is not said to run")
    await engine.close()


async def test_it_is_confirmed_again_until_the_chain_has_it_and_with_the_number_that_it_wants(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(task())
        await until(lambda: len(node.acts()) >= 3, "it is not said again")
        node.runner.on_task(msgspec.structs.replace(task(), acts_nonce=7))
        await until(lambda: node.acts()[-1].nonce == 7, "the other number is not signed with")
        node.runner.on_task(later(task(), TaskState.ACTIVE))
        await until(lambda: node.worker(task()).task.state is TaskState.ACTIVE, "the task did not arrive")
        said = len(node.acts())
        node.worker(task())._woken.set()
        await until(lambda: not node.worker(task())._woken.is_set(), "it did not look")
        assert len(node.acts()) <= said + 1
    await engine.close()


async def test_a_lease_that_is_over_leaves_nothing_behind(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task()
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        node.runner.on_task(later(given, TaskState.OVER))
        await until(lambda: not node.runner.workers, "its worker goes on")
        assert (await node.runtime.containers(), node.reservations.entries(), stored(tmp_path)) == (
            [],
            {},
            [],
        )


async def test_a_restarted_agent_adopts_its_container_and_touches_it_only_when_told(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    given = task(gpus=1)
    async with running(Node(tmp_path, engine)) as first:
        first.runner.on_task(given)
        await until(lambda: bool(first.acts()), "nothing was confirmed")
        before = (await first.runtime.containers())[0].container_id
    async with running(Node(tmp_path, engine)) as second:
        assert second.runner.held() == [(bytes.fromhex(given.order_id[2:]), 1)]
        assert second.reservations.reserved().gpus == 1
        assert second.worker(given).gpu_ids == ("0",)
        second.runner.on_task(later(given, TaskState.ACTIVE))
        await until(lambda: bool(second.reports()), "it does not go on with it")
        (found,) = await second.runtime.containers()
        assert (found.container_id, found.state, second.acts()) == (before, ContainerState.RUNNING, [])
    await engine.close()


async def test_a_container_that_went_away_is_made_again(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = later(task(), TaskState.ACTIVE)
        node.runner.on_task(given)
        label = label_of(given, node=NODE_KEY.address)
        await until(lambda: node.worker(given).phase is ProgramPhase.RUNNING if node.runner.workers else False, "no")
        await node.runtime.remove(label)
        node.runner.on_task(given)
        await until(lambda: bool(engine.containers), "it is not started again")
    await engine.close()


async def test_a_pause_stops_the_program_and_a_resume_confirms_it_anew(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task()
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        paused = later(given, TaskState.PAUSED, paused_for_empty=True)
        node.runner.on_task(paused)
        await until(lambda: node.worker(given).phase is ProgramPhase.PAUSED, "it is not paused")
        assert await shown(node, given) is ContainerState.PAUSED
        node.said.clear()
        node.runner.on_task(later(paused, TaskState.PENDING, acts_nonce=1))
        await until(lambda: bool(node.acts()), "the resumed lease is not confirmed")
        assert (await shown(node, given), node.acts()[0].nonce) == (ContainerState.RUNNING, 1)
    await engine.close()


async def test_a_missing_image_is_the_renters_and_the_start_is_confirmed_as_held(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task(image="example/missing:1")
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        found = details(node.acts()[0].details)
        assert not found.started
        assert found.why is not None
        assert "example/missing:1" in found.why
        assert node.reservations.entries()
        await until(lambda: node.reports()[-1].phase is ProgramPhase.FAILED, "its renter does not see it")


async def test_a_machine_that_cannot_start_it_confirms_nothing_and_starts_it_once_it_can(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    """Otherwise its renter would pay for a fault of the machine."""
    async with running(Node(tmp_path, engine)) as node:
        able, node.runtime.can = node.runtime.can, replace(node.runtime.can, limits=False)
        given = task()
        node.runner.on_task(given)
        await until(lambda: bool(node.reports()) and node.reports()[-1].phase is ProgramPhase.FAILED, "it is not tried")
        assert node.acts() == []
        node.runtime.can = able
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        assert details(node.acts()[0].details).started
    await engine.close()


async def test_an_agent_goes_on_when_its_engine_shows_nothing_for_a_moment(
    tmp_path: Path, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = task()
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        looks, containers = list[int](), node.runtime.containers

        async def blind() -> list[LeaseContainer]:
            looks.append(1)
            if len(looks) < 3:
                raise StartRefused("container ab does not exist in database")
            return await containers()

        monkeypatch.setattr(node.runtime, "containers", blind)
        node.runner.on_task(later(given, TaskState.OVER))
        await until(lambda: engine.containers == {}, "the container is still there")
    assert len(looks) >= 3


async def test_an_image_that_takes_long_is_confirmed_as_held_and_started_when_it_is_there(
    tmp_path: Path, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = asyncio.Event()
    async with running(Node(tmp_path, engine)) as node:
        pull = node.runtime.pull

        async def slow(image: str, on_progress: OnProgress) -> ImageId:
            await is_there.wait()
            return await pull(image, on_progress)

        monkeypatch.setattr(node.runtime, "pull", slow)
        given = task(confirm_by=int(node.clock.unix_s()) + RENTER_MARGIN_S)
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        found = details(node.acts()[0].details)
        assert (found.started, found.why) == (False, "its image is still being fetched")
        assert (node.worker(given).phase, engine.containers) == (ProgramPhase.PULLING, {})
        is_there.set()
        node.runner.on_task(later(given, TaskState.ACTIVE))
        await until(lambda: node.worker(given).phase is ProgramPhase.RUNNING, "it is not started")
    await engine.close()


async def test_secrets_are_opened_into_the_environment_and_never_said(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task(command=(PROGRAM, "env", "TOKEN", "wait", "1000000"), secrets=("TOKEN",))
        node.runner.on_task(given)
        await until(lambda: given.order_id in node.runner.workers, "the task did not arrive")
        assert node.acts() == []
        node.runner.on_task(later(given, TaskState.PENDING, sealed={"TOKEN": seal("TOKEN", "hunter2", given)}))
        await until(lambda: bool(node.acts()), "it did not start with the secret")
        label = label_of(given, node=NODE_KEY.address)
        lines = [line async for _, line in node.runtime.logs(label, follow=False, tail=10)]
        assert lines == [b"env TOKEN=hunter2\n"]
        assert "hunter2" not in repr(node.said)
        assert all(b"hunter2" not in path.read_bytes() for path in stored(tmp_path))
    await engine.close()


async def test_a_secret_of_another_name_starts_nothing(tmp_path: Path, engine: MemoryEngine) -> None:
    """The lie: whoever carries two sealed secrets swaps them."""
    async with running(Node(tmp_path, engine)) as node:
        given = task(secrets=("TOKEN",))
        sealed = msgspec.structs.replace(given, sealed={"TOKEN": seal("OTHER", "hunter2", given)})
        node.runner.on_task(sealed)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        assert not details(node.acts()[0].details).started
        assert not engine.containers


async def test_a_stand_in_claims_a_vacant_lease_and_runs_it_as_its_next_term(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = task(state=TaskState.VACANT, position=1)
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "it does not claim")
        act = node.acts()[0]
        assert (act.kind, act.term) == (ActKind.ACCEPT, 2)
        assert is_signed_by(NODE_KEY.address, act, contracts=CONTRACTS)
        assert node.reservations.entries()
        assert node.runner.held() == []
        node.runner.on_task(later(given, TaskState.PENDING, term=2))
        await until(lambda: node.acts()[-1].kind is ActKind.CONFIRM, "it does not start")
        assert node.acts()[-1].term == 2
    await engine.close()


async def test_a_stand_in_without_room_or_whose_owner_offers_nothing_claims_nothing(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    async with running(Node(tmp_path, engine)) as node:
        node.offers = False
        given = task(state=TaskState.VACANT, position=1)
        node.runner.on_task(given)
        await until(lambda: given.order_id in node.runner.workers, "the task did not arrive")
        node.runner.on_task(later(given, TaskState.OVER))
        await until(lambda: not node.runner.workers, "its worker goes on")
        assert node.acts() == []


async def test_a_task_that_is_not_what_was_ordered_is_not_carried_out(tmp_path: Path, engine: MemoryEngine) -> None:
    """The lie: a gateway that has a node run its own image at the renter's cost."""
    async with running(Node(tmp_path, engine)) as node:
        other = task(image="example/other:1")
        for lie in (
            msgspec.structs.replace(task(), content=other.content),
            msgspec.structs.replace(task(), content=other.content, specification=other.specification),
            msgspec.structs.replace(task(), renter="0x" + "5" * 40),
        ):
            node.runner.on_task(lie)
        good = task(command=(PROGRAM, "wait", "1000000"))
        node.runner.on_task(good)
        await until(lambda: bool(node.acts()), "the true one was not carried out")
        assert {act.order_id for act in node.acts()} == {good.order_id}
    await engine.close()


async def test_an_older_word_of_a_slower_gateway_changes_nothing(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given = later(task(), TaskState.ACTIVE)
        node.runner.on_task(given)
        await until(lambda: bool(engine.containers), "it did not start")
        node.runner.on_task(msgspec.structs.replace(given, state=TaskState.OVER, block_number=given.block_number - 1))
        node.runner.on_task(later(given, TaskState.ACTIVE))
        await until(lambda: node.worker(given).task.block_number == given.block_number + 1, "the newer did not arrive")
        assert engine.containers
    await engine.close()


async def test_a_container_without_a_lease_goes_after_two_blocks_said_so(tmp_path: Path, engine: MemoryEngine) -> None:
    given = task()
    async with running(Node(tmp_path, engine)) as first:
        first.runner.on_task(given)
        await until(lambda: bool(first.acts()), "nothing was confirmed")
    for path in stored(tmp_path):
        path.unlink()
    node = Node(tmp_path, engine)
    node.facts = market(held=None)
    await node.runner.reconcile()
    node.facts = market(held=(HeldLease(given.order_id, 1),), block_number=51)
    await node.runner.reconcile()
    node.facts = market(held=(), block_number=52)
    await node.runner.reconcile()
    await node.runner.reconcile()
    assert engine.containers
    node.facts = market(held=(), block_number=53)
    await node.runner.reconcile()
    assert not engine.containers
    await engine.close()


async def test_a_container_without_a_lease_goes_on_a_quiet_chain_too(tmp_path: Path, engine: MemoryEngine) -> None:
    given = task()
    async with running(Node(tmp_path, engine)) as first:
        first.runner.on_task(given)
        await until(lambda: bool(first.acts()), "nothing was confirmed")
    for path in stored(tmp_path):
        path.unlink()
    node = Node(tmp_path, engine)
    node.facts = market(held=(), block_number=52)
    await node.runner.reconcile()
    assert engine.containers, "one word is not enough"
    label = label_of(given, node=NODE_KEY.address)
    said = node.runner._unknown[label.lease_id]
    node.runner._unknown[label.lease_id] = said._replace(now_s=said.now_s - QUIET_CHAIN_S)
    await node.runner.reconcile()
    assert not engine.containers
    await engine.close()


def proposal(given: LeaseTask, *, seq: int = 1) -> ProposedUpdate:
    return ProposedUpdate(
        spec_hash="0x" + "11" * 32,
        rate_uusd=2_000_000,
        duration_s=7_200,
        seq=seq,
        specification=given.specification,
        content=given.content,
    )


async def test_a_change_that_the_owner_accepts_is_signed_for_the_lease_that_runs(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    async with running(Node(tmp_path, engine)) as node:
        given, update = task(), proposal(task())
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        node.runner.on_task(later(given, TaskState.ACTIVE, proposed=update, moves_nonce=4))
        await until(lambda: node.acts()[-1].kind is ActKind.ACCEPT_UPDATE, "the change is not accepted")
        act = node.acts()[-1]
        assert (act.seq, act.nonce) == (1, 4)
        assert is_signed_by(NODE_KEY.address, act, contracts=CONTRACTS, update=update)
        assert not is_signed_by(NODE_KEY.address, act, contracts=CONTRACTS, update=proposal(given, seq=2))
    await engine.close()


async def test_a_change_that_the_owner_does_not_accept_is_not_signed(tmp_path: Path, engine: MemoryEngine) -> None:
    async with running(Node(tmp_path, engine)) as node:
        node.accepts = False
        given = task()
        node.runner.on_task(later(given, TaskState.ACTIVE, proposed=proposal(given)))
        await until(
            lambda: bool(node.reports()) and node.reports()[-1].phase is ProgramPhase.RUNNING, "it does not run"
        )
        node.runner.on_task(later(given, TaskState.PAUSED, proposed=proposal(given)))
        await until(lambda: node.reports()[-1].phase is ProgramPhase.PAUSED, "it is not paused")
        node.accepts = True  # a paused lease is not changed either
        node.worker(given)._woken.set()
        await until(lambda: not node.worker(given)._woken.is_set(), "it did not look")
        assert all(act.kind is not ActKind.ACCEPT_UPDATE for act in node.acts())
    await engine.close()


async def reaches_proxy(node: Node) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", node.proxies.port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_lease_that_joins_the_network_has_a_way_to_the_gateway_until_it_ends(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    command = (PROGRAM, "env", GATEWAY_VARIABLE, "wait", "1000000")
    given = task(gateway=True, command=command)
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        assert await reaches_proxy(node)
        label = label_of(given, node=NODE_KEY.address)
        lines = [data async for _, data in node.runtime.logs(label, follow=False, tail=10)]
        assert b"".join(lines).split() == [b"env", f"{GATEWAY_VARIABLE}=http://127.0.0.1:8484".encode()]
    assert not await reaches_proxy(node), "an agent that ends closes it"
    async with running(Node(tmp_path, engine)) as again:
        assert not await reaches_proxy(again), "not before a gateway has said that the lease goes on"
        again.runner.on_task(later(given, TaskState.ACTIVE))
        async with asyncio.timeout(20):
            while not await reaches_proxy(again):  # noqa: ASYNC110 (polls with a ceiling)
                await asyncio.sleep(0.002)
        again.runner.on_task(later(given, TaskState.OVER))
        await until(lambda: again.runner.workers == {}, "it is not over")
        assert not await reaches_proxy(again)


async def test_a_lease_that_does_not_join_has_none_and_is_not_told_of_the_gateway(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    given = task(command=(PROGRAM, "env", GATEWAY_VARIABLE, "wait", "1000000"))
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        assert not await reaches_proxy(node)
        label = label_of(given, node=NODE_KEY.address)
        lines = [data async for _, data in node.runtime.logs(label, follow=False, tail=10)]
        assert b"8484" not in b"".join(lines)


def with_program(given: LeaseTask, *, image: str = IMAGE, word: str) -> ProposedUpdate:
    """An accepted update: another program."""
    content = write_content(LeaseContent(image=image, command=(PROGRAM, "say", word, "wait", "1000000")))
    spec = read_message(Specification, given.specification)
    wanted = replace(spec, content_hash=content_hash_of(content))
    return msgspec.structs.replace(
        proposal(given),
        spec_hash="0x" + struct_hash(wanted).hex(),
        specification=write_message(wanted),
        content=content,
    )


async def written(node: Node, given: LeaseTask) -> bytes:
    label = label_of(given, node=NODE_KEY.address)
    return b"".join([data async for _, data in node.runtime.logs(label, follow=False, tail=10)])


async def test_an_accepted_update_replaces_the_program_and_a_restarted_agent_does_not_again(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    given = task()
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        first = await node.runtime.container(label_of(given, node=NODE_KEY.address))
        updated = later(given, TaskState.ACTIVE, updated=with_program(given, word="second"))
        node.runner.on_task(updated)
        async with asyncio.timeout(20):
            while (found := await node.runtime.container(label_of(given, node=NODE_KEY.address))) is None or (  # noqa: ASYNC110
                first is not None and found.container_id == first.container_id
            ):
                await asyncio.sleep(0.002)  # polls with a ceiling
        assert b"second" in await written(node, given)
    async with running(Node(tmp_path, engine)) as again:
        again.runner.on_task(updated)
        await until(lambda: bool(again.reports()) and again.reports()[-1].phase is ProgramPhase.RUNNING, "no report")
        same = await again.runtime.container(label_of(given, node=NODE_KEY.address))
        assert same is not None
        assert same.container_id == found.container_id


async def test_an_update_whose_image_is_missing_leaves_what_runs_and_says_so(
    tmp_path: Path, engine: MemoryEngine
) -> None:
    given = task()
    async with running(Node(tmp_path, engine)) as node:
        node.runner.on_task(given)
        await until(lambda: bool(node.acts()), "nothing was confirmed")
        node.runner.on_task(
            later(given, TaskState.ACTIVE, updated=with_program(given, image="example/missing:1", word="second"))
        )
        await until(lambda: "as before its update" in (node.reports()[-1].trouble or ""), "it is not said")
        assert await shown(node, given) is ContainerState.RUNNING
        assert b"hello" in await written(node, given)
