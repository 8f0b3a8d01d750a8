"""What the registry refuses, delays, drops and forgets: an account's bounds, the rates of its nodes, nodes away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from sparewatt.core.errors import LinkLost
from sparewatt.core.ids import AccountId, ModelId, NodeId
from sparewatt.inference.fleet.away_models import UNSERVED_MODELS_MAX
from sparewatt.inference.fleet.fleet_limits import JOINS_BURST, SPECS_BURST, FleetBounds
from sparewatt.inference.fleet.link_registry import FORGET_AFTER_S
from sparewatt.link.sockets import CLOSE_FLOODED
from sparewatt.protocol.link.frames import Goodbye, Opcode, decode_message, encode_message
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs
from tests.unit.inference.fleet.test_link_registry import Registry, Visit, closing, receive_op
from tests.unit.protocol.reports import MODEL, SPECS
from tests.waiting import until

BOUNDS = FleetBounds(nodes_per_account=2, models_per_account=10, models_per_node=8)


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    async with closing(Registry(bounds=BOUNDS)) as registry:
        yield registry


def specs_of(count: int, *, start: int = 0, name: str = "attic") -> NodeSpecs:
    models = tuple(msgspec.structs.replace(MODEL, id=f"m{start + number}") for number in range(count))
    return msgspec.structs.replace(SPECS, name=name, models=models)


async def leave(registry: Registry, visit: Visit) -> None:
    visit.socket.close()
    await until(lambda: visit.key.address not in registry.links)


async def refused(registry: Registry, *, seed: int, specs: NodeSpecs = SPECS) -> str:
    """What a node is told that may come again later."""
    with pytest.raises(LinkLost) as told:
        await registry.visit(seed=seed).join(specs=specs)
    return str(told.value)


# the bounds of an account


async def test_a_node_with_too_many_models_is_told_which_setting_is_in_the_way(registry: Registry) -> None:
    assert "--models-per-node" in await refused(registry, seed=1, specs=specs_of(9))
    assert len(registry.table) == 0


async def test_an_account_has_so_many_nodes_and_those_may_always_come_back(registry: Registry) -> None:
    first = await registry.joined(seed=1)
    await registry.joined(seed=2)
    assert "--nodes-per-account" in await refused(registry, seed=3)
    await leave(registry, first)
    assert "--nodes-per-account" in await refused(registry, seed=3)
    await registry.joined(seed=1)


async def test_an_account_has_so_many_models_on_connected_nodes(registry: Registry) -> None:
    first = await registry.joined(seed=1, specs=specs_of(8))
    assert "--models-per-account" in await refused(registry, seed=2, specs=specs_of(3))
    await leave(registry, first)
    await registry.joined(seed=2, specs=specs_of(3))


async def test_a_node_s_own_models_before_do_not_count_when_it_joins_again(registry: Registry) -> None:
    await registry.joined(seed=1, specs=specs_of(8))
    await registry.joined(seed=1, specs=specs_of(8))


async def test_a_node_that_reports_too_many_models_later_is_ended_with_the_reason(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    visit.socket.send(encode_message(Opcode.SPECS, specs_of(9)))
    goodbye = decode_message(await receive_op(visit.socket, Opcode.GOODBYE), Goodbye)
    assert "--models-per-node" in goodbye.reason
    await visit.over()
    assert (registry.row(visit).connected, registry.row(visit).specs) == (False, SPECS)


# rates


async def test_a_node_that_joins_and_leaves_all_the_time_has_to_wait(registry: Registry) -> None:
    for _ in range(JOINS_BURST):
        await registry.joined(seed=1)
    assert "Try again in" in await refused(registry, seed=1)
    await registry.joined(seed=2)
    registry.clock.advance(60.0)
    await registry.joined(seed=1)


async def test_specs_that_come_too_often_wait_and_only_the_last_is_written(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    node_id = visit.key.address
    for number in range(SPECS_BURST + 5):
        registry.on_specs(node_id, specs_of(1, start=number))
    assert set(registry.row(visit).models) == {f"m{SPECS_BURST - 1}"}
    registry.clock.advance(1.0)
    assert set(registry.row(visit).models) == {f"m{SPECS_BURST + 4}"}
    assert registry._specs_waiting == {}


async def test_specs_that_wait_for_a_node_that_left_are_dropped(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    for number in range(SPECS_BURST + 1):
        registry.on_specs(visit.key.address, specs_of(1, start=number))
    await leave(registry, visit)
    registry.clock.advance(5.0)
    assert set(registry.row(visit).models) == {f"m{SPECS_BURST - 1}"}
    registry.on_specs(visit.key.address, specs_of(2))
    assert registry._specs_waiting == {}


async def test_a_node_that_floods_its_link_with_reports_is_ended_by_a_code_of_its_own(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    far = visit.socket.peer
    for _ in range(1_000):
        visit.socket.send(encode_message(Opcode.LOAD, NodeLoad(running=1)))
    await visit.over()
    assert (far.close_code, registry.row(visit).connected) == (CLOSE_FLOODED, False)


# nodes away


async def test_models_of_nodes_that_never_served_are_kept_within_a_budget() -> None:
    count = UNSERVED_MODELS_MAX // 2
    async with closing(Registry()) as registry:
        for seed in (1, 2, 3):
            await leave(registry, await registry.joined(seed=seed, specs=specs_of(count, start=seed * count)))
        assert [len(registry.row(visit).models) for visit in registry.visits] == [0, count, count]
        assert len(registry.table.model_ids()) == 2 * count


async def test_a_node_that_lost_its_models_brings_them_again(registry: Registry) -> None:
    visit = await registry.joined(seed=1, specs=specs_of(3))
    await leave(registry, visit)
    registry._drop_models(visit.key.address)
    assert (registry.row(visit).models, registry.table.model_ids()) == ({}, set())
    again = await registry.joined(seed=1, specs=specs_of(3))
    assert set(registry.row(again).models) == {"m0", "m1", "m2"}


async def test_a_node_that_never_served_is_forgotten_after_a_day_and_may_join_again(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    node_id = visit.key.address
    assert registry.forgettable() == []
    await leave(registry, visit)
    registry.clock.advance(FORGET_AFTER_S - 1)
    assert registry.forgettable() == []
    registry.clock.advance(2)
    assert registry.forgettable() == [node_id]
    registry.forget([node_id])
    assert registry.forgotten == [node_id]
    assert (len(registry.table), dict(registry.owners), registry.joined_unix_s, registry.changed) == (0, {}, {}, set())
    assert (registry.names._of, registry.names._held, registry.catalog._digests) == ({}, {}, {})
    await registry.joined(seed=1)


async def test_a_node_that_served_is_not_forgotten(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    registry.table.note_success(visit.key.address, model=ModelId(MODEL.id), output_tokens=1)
    await leave(registry, visit)
    registry.clock.advance(2 * FORGET_AFTER_S)
    assert registry.forgettable() == []


async def test_a_node_that_is_connected_is_never_forgotten(registry: Registry) -> None:
    visit = await registry.joined(seed=1)
    registry.forget([visit.key.address, NodeId("0x" + "9" * 40)])
    assert (registry.row(visit).connected, registry.forgotten) == (True, [])


async def test_nodes_that_are_remembered_at_the_start_share_the_same_budget(registry: Registry) -> None:
    owner = AccountId("acc_owner")
    for number in (1, 2):
        specs = specs_of(UNSERVED_MODELS_MAX, start=number * UNSERVED_MODELS_MAX)
        registry.remember(NodeId(f"0x{number:040}"), owner, specs, last_seen_unix_s=5.0)
    registry.remember(NodeId(f"0x{3:040}"), owner, specs_of(10), last_seen_unix_s=5.0, has_served=True)
    assert [len(row.models) for row in registry.table] == [0, UNSERVED_MODELS_MAX, 10]


async def test_nodes_that_never_served_leave_the_table_and_still_count_as_their_account_s() -> None:
    async with closing(Registry(bounds=FleetBounds(nodes_per_account=2, unserved_nodes_kept=1))) as registry:
        for seed in (1, 2):
            await leave(registry, await registry.joined(seed=seed))
        first, second = (visit.key.address for visit in registry.visits)
        assert registry.table.get(first) is None
        assert registry.table.get(second) is not None
        assert registry.forgotten == [first]
        assert (len(registry.owners), registry.owners.count_of(AccountId("acc_owner"))) == (2, 2)
        assert "--nodes-per-account" in await refused(registry, seed=3)
        again = await registry.joined(seed=1)
        assert registry.row(again).connected
        assert registry.forgettable() == []
        await leave(registry, again)
        assert registry.table.get(second) is None
        assert registry.forgettable() == [second], "the database says whether it is forgotten"
        registry.forget([second])
        assert registry.owners.count_of(AccountId("acc_owner")) == 1
        await registry.joined(seed=3)
