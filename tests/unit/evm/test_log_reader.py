"""The log reader over a chain in memory that grows, reorganises and refuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from sparewatt.core.errors import ChainRefused, ChainUnavailable, WrongChain
from sparewatt.evm import log_reader
from sparewatt.evm.contract_abi import AbiEntry, AbiParam, Artifact, Contracts
from sparewatt.evm.log_reader import BLOCKS_KEPT, BLOCKS_PER_BATCH, REORG_BLOCKS_MAX, BlockBatch, LogReader, Reorg
from sparewatt.evm.model import BlockHeader, ChainIdentity, RawLog
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import keccak256

ADDRESS = "0x" + "11" * 20
SAID = AbiEntry(type="event", name="Said", inputs=(AbiParam(type="uint256", name="what"),))
CONTRACTS = Contracts({"echo": Artifact(abi=(SAID,))}, {"echo": ADDRESS})
GENESIS_S = 5_000


@dataclass
class MemoryChain:
    """Blocks with at most one event each; `tells_times` as newer nodes do."""

    headers: list[BlockHeader] = field(default_factory=list)
    said: dict[int, int] = field(default_factory=dict)
    """By block."""
    range_max: int | None = None
    tells_times: bool = False
    between: Callable[[], None] | None = None
    """Called once, after the next logs were read: something happens between two requests."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    fork: int = 0

    def mine(self, count: int = 1, *, says: bool = True) -> None:
        for _ in range(count):
            number = len(self.headers)
            parent = self.headers[-1].hash if self.headers else bytes(32)
            own = keccak256(parent + bytes([self.fork]) + number.to_bytes(8, "big"))
            self.headers.append(BlockHeader(number, own, parent, GENESIS_S + 2 * number, 7))
            if says and number:
                self.said[number] = 1_000 * self.fork + number

    def reorganise(self, to_block: int, *, then: int) -> None:
        """Replace everything above a block."""
        self.fork += 1
        del self.headers[to_block + 1 :]
        self.said = {number: what for number, what in self.said.items() if number <= to_block}
        self.mine(then)

    async def identity(self) -> ChainIdentity:
        return ChainIdentity(1, self.headers[0].hash)

    async def head(self) -> BlockHeader:
        return self.headers[-1]

    async def header(self, number: int) -> BlockHeader | None:
        return self.headers[number] if number < len(self.headers) else None

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        assert list(addresses) == [ADDRESS]
        self.ranges.append((first, last))
        if self.range_max is not None and last - first + 1 > self.range_max:
            raise ChainRefused("range too large")
        logs = [self.log(number) for number in range(first, min(last + 1, len(self.headers))) if number in self.said]
        if self.between is not None:
            between, self.between = self.between, None
            between()
        return logs

    def log(self, number: int) -> RawLog:
        header, data = self.headers[number], self.said[number].to_bytes(32, "big")
        unix_s = header.unix_s if self.tells_times else 0
        topics = (SAID.signature_hash(),)
        return RawLog(number, 0, header.hash, keccak256(data), ADDRESS, topics, data, unix_s)


async def a_reader(chain: MemoryChain, *, start_block: int = 0) -> LogReader:
    return LogReader(chain, CONTRACTS, await chain.identity(), start_block)


async def read_all(reader: LogReader, known: list[ChainEvent] | None = None) -> list[ChainEvent]:
    """Everything, as a follower keeps it: what a reorg removed is forgotten."""
    events = known if known is not None else []
    idle = 0
    while idle < 3:
        step = await reader.step()
        idle = idle + 1 if step is None else 0
        match step:
            case BlockBatch():
                events.extend(step.events)
            case Reorg():
                events[:] = [event for event in events if event.block_number <= step.common_block]
    return events


def what(events: Sequence[ChainEvent]) -> list[int]:
    return [event.args["what"] for event in events]


@pytest.fixture
def chain() -> MemoryChain:
    chain = MemoryChain()
    chain.mine(11)
    return chain


async def test_events_come_in_order_with_the_time_of_their_block(chain: MemoryChain) -> None:
    reader = await a_reader(chain)
    batch = await reader.step()
    assert isinstance(batch, BlockBatch)
    assert what(batch.events) == list(range(1, 11))
    assert [event.unix_s for event in batch.events[:2]] == [GENESIS_S + 2, GENESIS_S + 4]
    assert (batch.block.number, batch.head.number, reader.block_number) == (10, 10, 10)
    assert await reader.step() is None


@pytest.mark.parametrize("tells_times", [True, False])
async def test_a_long_chain_is_read_in_bounded_ranges(*, tells_times: bool) -> None:
    chain = MemoryChain(tells_times=tells_times)
    chain.mine(1_300)
    events = await read_all(await a_reader(chain))
    assert what(events) == list(range(1, 1_300))
    assert all(event.unix_s == GENESIS_S + 2 * event.block_number for event in events)
    assert max(last - first + 1 for first, last in chain.ranges) == BLOCKS_PER_BATCH


async def test_nothing_is_read_before_the_contracts_block(chain: MemoryChain) -> None:
    reader = await a_reader(chain, start_block=7)
    assert reader.block_number == 6
    assert what(await read_all(reader)) == [7, 8, 9, 10]


@pytest.mark.parametrize("range_max", [1, 3, 100])
async def test_a_range_that_the_node_refuses_is_halved(range_max: int) -> None:
    chain = MemoryChain(range_max=range_max)
    chain.mine(300)
    reader = await a_reader(chain)
    seen: list[ChainEvent] = []
    for _ in range(2_000):
        step = await reader.step()
        if isinstance(step, BlockBatch):
            seen.extend(step.events)
        if reader.block_number == 299:
            break
    assert what(seen) == list(range(1, 300))


async def test_a_range_with_too_many_events_is_halved(monkeypatch: pytest.MonkeyPatch, chain: MemoryChain) -> None:
    monkeypatch.setattr(log_reader, "EVENTS_PER_BATCH", 4)
    reader = await a_reader(chain)
    assert await reader.step() is None
    assert what(await read_all(reader)) == list(range(1, 11))
    assert chain.ranges[:2] == [(0, 10), (0, 4)]


async def test_a_node_that_refuses_a_single_block_is_not_asked_for_ever(chain: MemoryChain) -> None:
    chain.range_max = 0
    reader = await a_reader(chain, start_block=10)
    with pytest.raises(ChainRefused):
        await reader.step()


async def test_a_reorg_is_noticed_and_only_its_blocks_are_read_again(chain: MemoryChain) -> None:
    reader = await a_reader(chain)
    events = await read_all(reader)
    chain.reorganise(6, then=6)
    assert await reader.step() == Reorg(6)
    assert what(await read_all(reader, events[:6])) == [1, 2, 3, 4, 5, 6, *(1_000 + n for n in range(7, 13))]
    assert reader.reorg_count == 1


async def test_a_chain_that_lost_its_last_blocks_is_a_reorg(chain: MemoryChain) -> None:
    """A local chain that was killed: it is shorter, and has nothing new yet."""
    reader = await a_reader(chain)
    await read_all(reader)
    del chain.headers[8:]
    assert await reader.step() == Reorg(7)
    assert await reader.step() is None


async def test_a_reorg_between_two_requests_of_a_batch_gives_no_batch(chain: MemoryChain) -> None:
    """The logs are of blocks that the headers do not describe."""
    reader = await a_reader(chain)
    chain.between = lambda: chain.reorganise(4, then=8)
    assert await reader.step() is None
    assert reader.block_number == -1
    assert what(await read_all(reader)) == [1, 2, 3, 4, *(1_000 + n for n in range(5, 13))]


async def test_a_reorg_behind_the_next_block_gives_no_batch(chain: MemoryChain) -> None:
    """The last block read is gone while its successor is fetched: the parent's hash shows it."""
    reader = await a_reader(chain)
    await read_all(reader)

    class Late(MemoryChain):
        async def header(self, number: int) -> BlockHeader | None:
            found = await super().header(number)
            if self.fork == 0:
                self.reorganise(9, then=4)
            return found

    late = Late(headers=list(chain.headers), said=dict(chain.said))
    late.mine(2)
    reader.client = late
    assert await reader.step() is None
    assert await reader.step() == Reorg(9)


@dataclass
class CountingChain(MemoryChain):
    asked: list[str] = field(default_factory=list)

    async def head(self) -> BlockHeader:
        self.asked.append("head")
        return await super().head()

    async def header(self, number: int) -> BlockHeader | None:
        self.asked.append("header")
        return await super().header(number)

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        self.asked.append("logs")
        return await super().logs(first, last, addresses)


async def counted_step(chain: CountingChain, reader: LogReader) -> tuple[BlockBatch | Reorg | None, list[str]]:
    chain.asked.clear()
    return await reader.step(), list(chain.asked)


async def test_a_look_at_an_unchanged_chain_is_one_request() -> None:
    chain = CountingChain()
    chain.mine(11)
    reader = await a_reader(chain)
    await read_all(reader)
    assert await counted_step(chain, reader) == (None, ["head"])


@pytest.mark.parametrize(("trusts_bloom", "asked"), [(True, ["head"]), (False, ["head", "logs", "header"])])
async def test_an_empty_bloom_spares_the_logs_only_where_it_is_trusted(*, trusts_bloom: bool, asked: list[str]) -> None:
    chain = CountingChain()
    chain.mine(11)
    reader = await a_reader(chain)
    reader.trusts_bloom = trusts_bloom
    await read_all(reader)
    chain.mine(says=False)
    chain.headers[-1] = replace(chain.headers[-1], has_logs=False)
    step, requests = await counted_step(chain, reader)
    assert isinstance(step, BlockBatch)
    assert (step.block.number, step.events, requests) == (11, (), asked)


async def test_the_next_block_is_read_with_its_events_and_time() -> None:
    chain = CountingChain()
    chain.mine(11)
    reader = await a_reader(chain)
    await read_all(reader)
    chain.mine()
    step, requests = await counted_step(chain, reader)
    assert isinstance(step, BlockBatch)
    assert (what(step.events), step.events[0].unix_s) == ([11], GENESIS_S + 22)
    assert requests == ["head", "logs", "header"]


async def test_a_reorg_while_the_next_block_is_read_gives_no_batch() -> None:
    chain = CountingChain()
    chain.mine(11)
    reader = await a_reader(chain)
    events = await read_all(reader)
    chain.mine()
    chain.between = lambda: chain.reorganise(10, then=2)
    assert await reader.step() is None
    assert what(await read_all(reader, events))[-2:] == [1_011, 1_012]


async def test_a_reorg_deeper_than_all_kept_blocks_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = MemoryChain()
    chain.mine(BLOCKS_KEPT + REORG_BLOCKS_MAX + 50)
    reader = await a_reader(chain, start_block=2)
    events = await read_all(reader)
    chain.reorganise(5, then=400)
    events = await read_all(reader, events)
    assert what(events) == [2, 3, 4, 5, *(1_000 + n for n in range(6, 406))]


async def test_another_chain_is_refused(chain: MemoryChain) -> None:
    reader = await a_reader(chain)
    await read_all(reader)
    other = MemoryChain(fork=9)
    other.mine(20)
    reader.client = other
    with pytest.raises(WrongChain):
        await reader.step()


async def test_a_log_of_a_block_that_the_node_does_not_have_is_refused() -> None:
    """The cheapest lie about an old event: blocks that deep are not read one by one."""
    chain = MemoryChain()
    chain.mine(REORG_BLOCKS_MAX + 100)

    class Lying(MemoryChain):
        def log(self, number: int) -> RawLog:
            return replace(super().log(number), block_hash=bytes(32))

    reader = await a_reader(Lying(headers=chain.headers, said={5: 5}))
    with pytest.raises(ChainUnavailable):
        await reader.step()


async def test_blocks_that_are_not_linked_give_no_batch(chain: MemoryChain) -> None:
    chain.headers[8] = replace(chain.headers[8], parent_hash=bytes(32))
    assert await (await a_reader(chain)).step() is None


async def test_a_node_that_lacks_a_block_gives_no_batch(chain: MemoryChain) -> None:
    """Behind one address there may be nodes of different heights."""

    class Lagging(MemoryChain):
        async def header(self, number: int) -> BlockHeader | None:
            return None if number == 10 else await super().header(number)

    lagging = Lagging(headers=chain.headers, said=chain.said)
    assert await (await a_reader(lagging)).step() is None


@pytest.mark.parametrize("seed", range(30))
async def test_after_any_reorgs_the_events_are_those_of_the_chain(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (repeatable)
    chain = MemoryChain(range_max=rng.choice([None, 4, 50]), tells_times=rng.random() < 0.5)
    chain.mine(rng.randint(1, 150))
    reader = await a_reader(chain)
    events: list[ChainEvent] = []
    for _ in range(12):
        if rng.random() < 0.5:
            to_block = rng.randrange(max(0, len(chain.headers) - 40), len(chain.headers))
            chain.reorganise(to_block, then=rng.randint(0, 30))
        else:
            chain.mine(rng.randint(1, 120), says=rng.random() < 0.8)
        if rng.random() < 0.7:
            events = await read_all_ranges(reader, events)
            assert what(events) == [chain.said[number] for number in sorted(chain.said)]


async def read_all_ranges(reader: LogReader, events: list[ChainEvent]) -> list[ChainEvent]:
    """As `read_all`, where halving gives several empty steps in a row."""
    for _ in range(8):
        events = await read_all(reader, events)
    return events
