"""What nodes are told about leases, and when they are told again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sparewatt.core.ids import NodeId
from sparewatt.leasing.relay.lookups import MarketAddresses, OrderedContent
from sparewatt.leasing.running.task_relay import NUMBERED_S, REFRESH_S, REPEAT_S, TaskRelay
from sparewatt.market.chain_records import OrderRecord
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.contracts.message_json import write_message
from sparewatt.protocol.link.lease_tasks import LeaseTask, TaskState
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.testing.clocks import ManualClock
from tests.unit.leasing.relay.auction import ADDRESSES, CONTENT, MOVES, OPENED_AT, ORDERS, RENTER_NONCE, SPECIFICATION
from tests.unit.leasing.running.memory_tasks import MemoryTaskStore
from tests.unit.leasing.running.placed import (
    AUCTION,
    CLOSED,
    CONFIRMED,
    LOSER_KEY,
    ORDER,
    PAUSED,
    PLACED,
    STAND_IN_KEY,
    STREAMING,
    VACATED,
    WINNER,
    WINNER_KEY,
    proposed,
)
from tests.unit.market.market_events import deposited

WINNER_NODE, STAND_IN_NODE = NodeId(WINNER_KEY.address), NodeId(STAND_IN_KEY.address)
UPDATED = Specification(keccak256(b"{}"), 1, 2_000, 1_024, 1_024, 0, 0)
UPDATED_HASH = "0x" + struct_hash(UPDATED).hex()


@dataclass
class Link:
    tasks: list[LeaseTask] = field(default_factory=list)

    def send_task(self, task: LeaseTask) -> None:
        self.tasks.append(task)


class Scene:
    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), MemoryTaskStore()
        self.links = {NodeId(key.address): Link() for key in (WINNER_KEY, STAND_IN_KEY, LOSER_KEY)}
        self.contents = {
            AUCTION.lookup_event().args["spec_hash"]: OrderedContent(SPECIFICATION, CONTENT),
            UPDATED_HASH: OrderedContent(UPDATED, "{}"),
        }
        self.relay = TaskRelay(
            link_of=self.links.get,
            content_of=self._content,
            renter_nonce=self._nonce,
            store=self.store,
            clock=self.clock,
        )
        self.view, self.version = ChainView(depth=1), 0
        self._number = 0

    async def _content(self, spec_hash: str, _: str) -> OrderedContent | None:
        return self.contents.get(spec_hash)

    async def _nonce(self, _order: OrderRecord, _: MarketAddresses) -> int | None:
        return RENTER_NONCE

    async def happen(self, *events: ChainEvent) -> None:
        """In one block each."""

        for event in events:
            self._number += 1
            placed = replace(event, block_number=self._number)
            self.view.advance([placed], to_block=self._number)
        self.version += 1
        await self.look({ORDER})

    async def look(self, changed: set[str] | None = None) -> None:
        await self.relay.follow(self.view, changed or set(), ADDRESSES, version=self.version)

    def told(self, node: NodeId = WINNER_NODE) -> list[TaskState]:
        return [task.state for task in self.links[node].tasks]


async def placed_scene() -> Scene:
    scene = Scene()
    await scene.happen(*AUCTION.events(), AUCTION.lookup_event(), deposited(ORDER), *PLACED)
    return scene


async def test_the_winner_is_told_what_to_start_and_how_to_sign_for_it() -> None:
    scene = await placed_scene()
    (task,) = scene.links[WINNER_NODE].tasks
    assert (task.state, task.order_id, task.term, task.content) == (TaskState.PENDING, ORDER, 1, CONTENT)
    assert (task.renter_nonce, task.lease_moves, task.acts_nonce) == (RENTER_NONCE, MOVES, 0)
    assert task.specification == write_message(SPECIFICATION)
    assert scene.told(STAND_IN_NODE) == []


async def test_each_change_is_told_once() -> None:
    scene = await placed_scene()
    await scene.look({ORDER})
    await scene.happen(CONFIRMED, STREAMING)
    await scene.happen(PAUSED)
    assert scene.told() == [TaskState.PENDING, TaskState.ACTIVE, TaskState.PAUSED]
    active, paused = scene.links[WINNER_NODE].tasks[1:]
    assert (active.ends_at, active.paused_for_empty, paused.ends_at, paused.paused_for_empty) == (
        OPENED_AT + 3_610,
        False,
        0,
        True,
    )


async def test_a_new_link_is_told_again_and_every_link_from_time_to_time() -> None:
    scene = await placed_scene()
    scene.links[WINNER_NODE] = Link()
    scene.relay.tick()
    scene.relay.tick()
    assert scene.told() == [TaskState.PENDING]
    scene.clock.advance(REPEAT_S)
    scene.relay.tick()
    assert scene.told() == [TaskState.PENDING] * 2


async def test_a_vacant_lease_is_offered_to_the_stand_ins_and_over_for_who_had_it() -> None:
    scene = await placed_scene()
    await scene.happen(VACATED)
    assert scene.told() == [TaskState.PENDING, TaskState.OVER]
    (task,) = scene.links[STAND_IN_NODE].tasks
    assert (task.state, task.position, task.term) == (TaskState.VACANT, 1, 1)
    assert task.turn_at == scene.view.latest.leases[ORDER].vacated_at
    assert scene.told(NodeId(LOSER_KEY.address)) == []


async def test_the_end_of_a_lease_is_kept_for_a_node_that_is_away() -> None:
    scene = await placed_scene()
    link = scene.links.pop(WINNER_NODE)
    await scene.happen(CLOSED)
    scene.links[WINNER_NODE] = link
    scene.relay.tick()
    scene.clock.advance(REPEAT_S)
    scene.relay.tick()
    assert scene.told() == [TaskState.PENDING, TaskState.OVER]
    assert not scene.relay.tasks


async def test_another_number_to_sign_with_is_told_without_an_event() -> None:
    scene = await placed_scene()
    scene.store.nonces[WINNER_NODE] = {ORDERS: 4}
    scene.clock.advance(REFRESH_S)
    await scene.look()
    assert [task.acts_nonce for task in scene.links[WINNER_NODE].tasks] == [0, 4]


async def test_a_node_that_has_signed_for_a_running_lease_is_told_the_number_that_is_wanted() -> None:
    """It has several leases and one number: what it signs for one makes the others' stale."""
    scene = await placed_scene()
    await scene.happen(CONFIRMED, STREAMING)
    scene.store.nonces[WINNER_NODE] = {ORDERS: 9}
    scene.clock.advance(REFRESH_S)
    await scene.look()
    assert (scene.links[WINNER_NODE].tasks[-1].acts_nonce, scene.relay.has_pending) == (0, False)
    scene.relay.note_numbered(ORDER)
    assert scene.relay.has_pending
    scene.clock.advance(REFRESH_S)
    await scene.look()
    assert scene.links[WINNER_NODE].tasks[-1].acts_nonce == 9
    scene.clock.advance(NUMBERED_S)
    await scene.look()
    assert not scene.relay.has_pending


async def test_secrets_go_to_the_one_that_has_the_lease() -> None:
    scene = Scene()
    secret = Specification(keccak256(CONTENT.encode()), 1, 1_000, 1_024, 1_024, 0, 1)
    scene.contents[AUCTION.lookup_event().args["spec_hash"]] = OrderedContent(secret, CONTENT)
    await scene.happen(*AUCTION.events(), AUCTION.lookup_event(), deposited(ORDER), *PLACED)
    scene.store.sealed[WINNER] = {"TOKEN": "0xab"}
    scene.clock.advance(REFRESH_S)
    await scene.look()
    assert [task.sealed for task in scene.links[WINNER_NODE].tasks] == [{}, {"TOKEN": "0xab"}]
    await scene.happen(VACATED)
    assert all(not task.sealed for task in scene.links[STAND_IN_NODE].tasks)


async def test_secrets_that_come_after_the_start_was_confirmed_are_told_too() -> None:
    scene = Scene()
    secret = Specification(keccak256(CONTENT.encode()), 1, 1_000, 1_024, 1_024, 0, 1)
    scene.contents[AUCTION.lookup_event().args["spec_hash"]] = OrderedContent(secret, CONTENT)
    await scene.happen(*AUCTION.events(), AUCTION.lookup_event(), deposited(ORDER), *PLACED, CONFIRMED, STREAMING)
    scene.store.sealed[WINNER] = {"TOKEN": "0xab"}
    scene.clock.advance(REFRESH_S)
    await scene.look()
    assert scene.links[WINNER_NODE].tasks[-1].sealed == {"TOKEN": "0xab"}


async def test_a_proposed_update_is_told_with_what_it_would_run() -> None:
    scene = await placed_scene()
    await scene.happen(CONFIRMED, STREAMING, proposed(UPDATED_HASH))
    task = scene.links[WINNER_NODE].tasks[-1]
    assert task.proposed is not None
    assert (task.proposed.content, task.proposed.rate_uusd, task.proposed.seq) == ("{}", 1_000_000, 1)
    assert scene.relay.proposed_update(ORDER, WINNER_NODE) == task.proposed
    assert scene.relay.proposed_update(ORDER, STAND_IN_NODE) is None


async def test_a_lease_whose_content_is_not_known_here_is_left_to_others() -> None:
    scene = Scene()
    scene.contents.clear()
    await scene.happen(*AUCTION.events(), AUCTION.lookup_event(), deposited(ORDER), *PLACED)
    assert not scene.relay.tasks
