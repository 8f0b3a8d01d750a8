from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay import market_relay
from sparewatt.leasing.relay.collector import MatchCollector
from sparewatt.leasing.relay.market_relay import MarketRelay
from sparewatt.leasing.running.task_relay import TaskRelay
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.connection_pool import Notification
from tests.unit.leasing.relay.auction import ADDRESSES, MOVES, NODE_KEYS, ORDERS, PROVIDERS, STAKES, TASKS, Auction
from tests.unit.leasing.relay.test_collector import MemoryMatches, Validators
from tests.unit.leasing.relay.test_lookup_relay import NODES
from tests.unit.leasing.relay.test_lookup_relay import Scene as RelayScene
from tests.unit.leasing.running.memory_tasks import MemoryTaskStore
from tests.unit.leasing.test_market_index import MemoryEvents
from tests.unit.market.market_events import in_blocks

AUCTION = Auction()
CONTRACTS = {"task_manager": TASKS, "deployment_order": ORDERS, "stake_registry": STAKES, "lease_moves": MOVES}


class MemoryIndex:
    contracts = CONTRACTS

    async def index(self) -> ChainIndexRow | None:
        return ChainIndexRow(ADDRESSES.chain_id, bytes(32), self.contracts, 0, 0, bytes(32), 0, 1)


class Changes:
    def __init__(self, changed: Notification) -> None:
        self._changed = changed

    @asynccontextmanager
    async def changed(self) -> AsyncIterator[Notification]:
        yield self._changed


class Scene:
    def __init__(self) -> None:
        self.source, self.changed, self.chain = MemoryEvents(), Notification(), MemoryIndex()
        self.nodes = RelayScene()
        self.follower = MarketRelay(
            index=MarketIndex(self.source, has_chain=True),
            changes=Changes(self.changed),
            chain=self.chain,
            lookups=self.nodes.relay,
            collector=MatchCollector(
                validators=Validators(),
                store=MemoryMatches(),
                is_collector=lambda: False,
                asked_count=lambda *_: 0,
                clock=self.nodes.clock,
            ),
            tasks=TaskRelay(
                link_of=self.nodes.relay.link_of,
                content_of=self.nodes.relay.content_of,
                renter_nonce=self.nodes.relay.renter_nonce,
                store=MemoryTaskStore(),
                clock=self.nodes.clock,
            ),
        )
        self.source.index(in_blocks(AUCTION.events(), per_block=100), to_block=1)

    def open_order(self) -> None:
        self.source.index(in_blocks([AUCTION.lookup_event()], first=2), to_block=2)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not holds():  # noqa: ASYNC110 (polls with a ceiling)
            await asyncio.sleep(0.002)


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_an_event_wakes_it_and_nodes_hear_of_the_order_at_once(scene: Scene) -> None:
    running = asyncio.create_task(scene.follower.run())
    await until(lambda: bool(scene.nodes.links[NODES[0]].facts))
    scene.open_order()
    scene.changed.set()
    await until(lambda: scene.nodes.told() == [1, 1, 0])
    running.cancel()


async def test_it_ends_when_its_connection_is_lost_so_that_it_is_started_again(scene: Scene) -> None:
    running = asyncio.create_task(scene.follower.run())
    await until(lambda: bool(scene.nodes.links[NODES[0]].facts))
    scene.changed.is_lost = True
    scene.changed.set()
    async with asyncio.timeout(5.0):
        await running


async def test_an_idle_market_is_read_seldom(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_relay, "NODES_S", 0.001)
    running = asyncio.create_task(scene.follower.run())
    await until(lambda: bool(scene.nodes.links[NODES[0]].facts))
    reads = scene.source.reads
    await asyncio.sleep(0.05)
    assert scene.source.reads == reads, "the next look by itself is seconds away"
    running.cancel()


async def test_without_a_notification_it_looks_by_itself(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market_relay, "IDLE_S", 0.01)
    running = asyncio.create_task(scene.follower.run())
    await until(lambda: bool(scene.nodes.links[NODES[0]].facts))
    scene.open_order()
    await until(lambda: scene.nodes.told() == [1, 1, 0])
    running.cancel()


async def test_nothing_is_relayed_before_the_market_is_known(scene: Scene) -> None:
    scene.source.exists = False
    await scene.follower.step()
    assert scene.nodes.links[NODES[0]].facts == []
    scene.source.exists = True
    scene.chain.contracts = {"echo": "0x"}
    await scene.follower.step()
    assert scene.nodes.links[NODES[0]].facts == []
    scene.chain.contracts = CONTRACTS
    await scene.follower.step()
    assert scene.nodes.links[NODES[0]].facts[0].provider == PROVIDERS[0]
    assert NODES[0] == NODE_KEYS[PROVIDERS[0]].address
