"""The market's index over a table of events that grows, loses events and starts over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, NoChain
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import EVENT_NAMES, apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store import market_fold
from sparewatt.store.chain import EventPosition
from sparewatt.store.market_events import MarketEvents
from tests.unit.market.market_events import ORDER, OTHER_ORDER, a_life, an_event, in_blocks, lookup


@dataclass
class MemoryEvents:
    """As MarketEventStore, over a list. Counts what it is asked for."""

    events: list[ChainEvent] = field(default_factory=list)
    generation: int = 1
    common_block: int = -1
    start_block: int = 1
    indexed_block: int = 0
    depth: int = 3
    exists: bool = True
    reads: int = 0

    async def events_after(self, position: EventPosition, *, names: Sequence[str], limit: int) -> MarketEvents | None:
        assert names == EVENT_NAMES
        self.reads += 1
        if not self.exists:
            return None
        behind = [event for event in self.events if (event.block_number, event.log_index) > position]
        head = (self.generation, self.common_block, self.start_block, self.indexed_block, self.depth, 60)
        return MarketEvents(*head, tuple(behind[:limit]))

    def index(self, events: Sequence[ChainEvent], *, to_block: int) -> None:
        self.events += events
        self.indexed_block = to_block

    def roll_back(self, to_block: int) -> None:
        self.events = [event for event in self.events if event.block_number <= to_block]
        self.generation, self.common_block, self.indexed_block = self.generation + 1, to_block, to_block

    def start_over(self, *, start_block: int) -> None:
        self.events = []
        self.generation, self.common_block = self.generation + 1, -1
        self.start_block, self.indexed_block = start_block, start_block - 1


def folded(events: Sequence[ChainEvent]) -> MarketState:
    state = MarketState()
    for event in events:
        apply_event(state, event)
    return state


@pytest.fixture
def source() -> MemoryEvents:
    return MemoryEvents()


@pytest.fixture
def index(source: MemoryEvents) -> MarketIndex:
    return MarketIndex(source, has_chain=True)


async def test_it_is_built_from_the_stored_events_and_then_follows(source: MemoryEvents, index: MarketIndex) -> None:
    events = in_blocks(a_life())
    source.index(events[:20], to_block=20)
    await index.follow()
    view = index.view()
    assert view.latest == folded(events[:20])
    assert view.final == folded(events[:18])
    source.index(events[20:], to_block=len(events) + 10)
    await index.follow()
    assert index.view().latest == index.view().final == folded(events)
    assert index.view().latest_block == len(events) + 10


async def test_a_read_ends_in_the_middle_of_a_block(
    source: MemoryEvents, index: MarketIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market_fold, "EVENTS_PER_READ", 3)
    events = in_blocks(a_life(), per_block=7)
    source.index(events, to_block=events[-1].block_number)
    await index.follow()
    assert index.view().latest == folded(events)


async def test_one_step_reads_only_so_much(
    source: MemoryEvents, index: MarketIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A market that is read in part is not shown: it would lack what happened since."""
    monkeypatch.setattr(market_fold, "EVENTS_PER_READ", 2)
    monkeypatch.setattr(market_fold, "READS_PER_STEP", 5)
    events = in_blocks(a_life())
    source.index(events, to_block=events[-1].block_number)
    await index.follow()
    assert source.reads == 5
    with pytest.raises(ChainUnavailable, match="still being read"):
        index.view()
    for _ in range(10):
        await index.follow()
    assert index.view().latest == folded(events)


async def test_what_a_reorg_removed_is_gone(source: MemoryEvents, index: MarketIndex) -> None:
    events = in_blocks([lookup(), lookup(OTHER_ORDER)])
    source.index(events, to_block=2)
    await index.follow()
    source.roll_back(1)
    await index.follow()
    assert set(index.view().latest.orders) == {ORDER}
    other = in_blocks([an_event("deployment_order.OrderCancelled", order_id=ORDER)], first=2)
    source.index(other, to_block=2)
    await index.follow()
    assert index.view().latest == folded([events[0], *other])


async def test_a_reorg_and_new_blocks_between_two_looks_are_seen(source: MemoryEvents, index: MarketIndex) -> None:
    """The new events stand before the position that was read: only the generation tells."""
    events = in_blocks([lookup(), lookup(OTHER_ORDER)])
    source.index(events, to_block=3)
    await index.follow()
    source.roll_back(1)
    third = in_blocks([lookup("0x" + "03" * 32)], first=2)
    source.index(third, to_block=5)
    await index.follow()
    assert index.view().latest == folded([events[0], *third])


async def test_a_reorg_below_the_final_block_builds_the_market_anew(source: MemoryEvents, index: MarketIndex) -> None:
    events = in_blocks(a_life())
    source.index(events, to_block=len(events))
    await index.follow()
    source.roll_back(5)
    source.index(in_blocks([lookup()], first=6), to_block=6)
    await index.follow()
    assert index.view().latest == folded([*events[:5], *in_blocks([lookup()], first=6)])


async def test_two_reorgs_between_two_looks_build_the_market_anew(source: MemoryEvents, index: MarketIndex) -> None:
    """Of two, only the last is known: the first may have gone deeper."""
    events = in_blocks([lookup(), lookup(OTHER_ORDER)])
    source.index(events, to_block=2)
    await index.follow()
    source.roll_back(0)
    source.index(in_blocks([lookup("0x" + "03" * 32)]), to_block=4)
    source.roll_back(3)
    await index.follow()
    assert set(index.view().latest.orders) == {"0x" + "03" * 32}


async def test_an_index_that_starts_over_starts_the_market_over(source: MemoryEvents, index: MarketIndex) -> None:
    source.index(in_blocks(a_life()), to_block=100)
    await index.follow()
    source.start_over(start_block=50)
    await index.follow()
    assert index.view().latest == MarketState()
    assert index.view().latest_block == 49


async def test_another_depth_is_taken_over(source: MemoryEvents, index: MarketIndex) -> None:
    source.index(in_blocks([lookup()]), to_block=2)
    await index.follow()
    assert index.view().final.orders == {}
    source.depth = 1
    await index.follow()
    assert set(index.view().final.orders) == {ORDER}


async def test_without_a_chain_it_says_so_and_reads_nothing(source: MemoryEvents) -> None:
    index = MarketIndex(source, has_chain=False)
    await index.follow()
    assert source.reads == 0
    with pytest.raises(NoChain, match="--no-chain"):
        index.view()


async def test_before_there_is_an_index_it_is_not_there_yet(source: MemoryEvents, index: MarketIndex) -> None:
    source.exists = False
    await index.follow()
    with pytest.raises(ChainUnavailable):
        index.view()
    source.exists = True
    await index.follow()
    assert index.view().latest == MarketState()


async def test_contracts_of_another_release_are_reported_once_and_not_read_again_and_again(
    source: MemoryEvents, index: MarketIndex
) -> None:
    strange = an_event("stake_registry.BondChanged", provider=ORDER)
    source.index(in_blocks([lookup(), strange]), to_block=2)
    await index.follow()
    with pytest.raises(ContractsOutdated, match="not of this release") as refusal:
        index.view()
    assert "KeyError" not in str(refusal.value), "that is for the log"
    reads = source.reads
    await index.follow()
    await index.follow()
    assert source.reads == reads + 2
    with pytest.raises(ContractsOutdated, match="BondChanged"):
        index.view()
    source.start_over(start_block=3)
    source.index(in_blocks([lookup()], first=3), to_block=3)
    await index.follow()
    assert set(index.view().latest.orders) == {ORDER}


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_happens_to_the_index_the_market_is_that_of_its_events(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)  # noqa: S311 (repeatable)
    monkeypatch.setattr(market_fold, "EVENTS_PER_READ", rng.randint(1, 9))
    source = MemoryEvents(depth=rng.randint(1, 5))
    index = MarketIndex(source, has_chain=True)
    life = a_life()
    for _ in range(25):
        if rng.random() < 0.3 and source.indexed_block > 0:
            source.roll_back(rng.randint(max(0, source.indexed_block - 8), source.indexed_block))
        else:
            first = source.indexed_block + 1
            taken = rng.sample(life, rng.randint(0, 6))
            events = in_blocks(taken, first=first, per_block=rng.randint(1, 3))
            source.index(events, to_block=first + rng.randint(6, 8))
        if rng.random() < 0.6:
            await index.follow()
            assert index.view().latest == folded(source.events)
            final = [event for event in source.events if event.block_number <= index.view().final_block]
            assert index.view().final == folded(final)
