"""The chain as a validator follows it: told once per block, as a whole after a reorg, and not before it is synced."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparewatt.core.errors import ChainRefused, ChainUnavailable, ContractsOutdated, WrongChain
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contracts, shipped_abis
from sparewatt.evm.model import BlockHeader, ChainIdentity, RawLog
from sparewatt.market.chain_view import ChainView
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.protocol.signing import keccak256
from sparewatt.protocol.typed_message import contract_domain
from sparewatt.testing.clocks import ManualClock
from sparewatt.validator.chain_follower import AWAY_S, LOOKS_APART_S, MarketFollower
from sparewatt.validator.deployment import MarketDeployment

ADDRESSES = {name: f"0x{index:040x}" for index, name in enumerate(shipped_abis(), 1)}
CONTRACTS = Contracts(shipped_abis(), ADDRESSES)
REGISTERED = next(
    entry
    for entry in shipped_abis()["provider_registry"].abi
    if entry.type == "event" and entry.name == "ProviderRegistered"
)
START_S = 1_000


@dataclass
class GrowingChain:
    """Blocks of which some register a provider."""

    headers: list[BlockHeader] = field(default_factory=list)
    logged: set[int] = field(default_factory=set)
    fork: int = 0
    asked: int = 0
    error: Exception | None = None
    bad_log: bool = False

    def mine(self, count: int = 1, *, registers: bool = False) -> None:
        for _ in range(count):
            number = len(self.headers)
            parent = self.headers[-1].hash if self.headers else bytes(32)
            own = keccak256(parent + bytes([self.fork]))
            self.headers.append(BlockHeader(number, own, parent, START_S + 2 * number, 0, has_logs=registers))
            if registers:
                self.logged.add(number)

    def reorganise(self, to_block: int, *, then: int) -> None:
        self.fork += 1
        del self.headers[to_block + 1 :]
        self.logged = {number for number in self.logged if number <= to_block}
        self.mine(then)

    async def identity(self) -> ChainIdentity:
        return ChainIdentity(31337, self.headers[0].hash)

    async def head(self) -> BlockHeader:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.headers[-1]

    async def header(self, number: int) -> BlockHeader | None:
        return self.headers[number] if 0 <= number < len(self.headers) else None

    async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
        return [self._log(number) for number in sorted(self.logged) if first <= number <= last]

    def _log(self, number: int) -> RawLog:
        topics = (REGISTERED.signature_hash(), number.to_bytes(32, "big"))
        data = b""
        header = self.headers[number]
        address = ADDRESSES["provider_registry"]
        return RawLog(number, 0, header.hash, keccak256(data), address, topics, data, header.unix_s)


@dataclass
class Notes:
    told: list[tuple[int, int, bool]] = field(default_factory=list)
    """Block, number of events, whether it was told as a whole."""
    events: list[ChainEvent] = field(default_factory=list)

    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        self.told.append((view.latest_block, len(events), is_whole))


@pytest.fixture
def chain() -> GrowingChain:
    chain = GrowingChain()
    chain.mine(5)
    return chain


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def follow(chain: GrowingChain, clock: ManualClock, *, depth: int = 3) -> tuple[MarketFollower, Notes]:
    anything: Any = chain
    identity = ChainIdentity(31337, chain.headers[0].hash)
    domain = contract_domain(chain_id=31337, contract=ADDRESSES["task_manager"])
    deployment = MarketDeployment(identity, CONTRACTS, 1, domain)
    notes = Notes()
    follower = MarketFollower(cast(EvmClient, anything), deployment, clock, depth, (notes,), notes.events.extend)
    return follower, notes


async def look(follower: MarketFollower, clock: ManualClock) -> None:
    clock.advance(1.0)
    await follower.look()


async def test_the_first_look_is_told_once_and_as_a_whole(chain: GrowingChain, clock: ManualClock) -> None:
    follower, notes = follow(chain, clock)
    assert not follower.is_synced
    await look(follower, clock)
    assert (notes.told, follower.is_synced, follower.block_number) == ([(4, 0, True)], True, 4)
    await look(follower, clock)
    assert len(notes.told) == 1


async def test_every_later_block_is_told_with_its_events(chain: GrowingChain, clock: ManualClock) -> None:
    follower, notes = follow(chain, clock)
    await look(follower, clock)
    chain.mine(registers=True)
    await look(follower, clock)
    chain.mine()
    await look(follower, clock)
    assert notes.told[1:] == [(5, 1, False), (6, 0, False)]
    assert [event.event for event in notes.events] == ["ProviderRegistered"]


async def test_old_events_are_heard_before_the_first_look_is_complete(chain: GrowingChain, clock: ManualClock) -> None:
    chain.mine(registers=True)
    follower, notes = follow(chain, clock)
    await look(follower, clock)
    assert (len(notes.events), notes.told) == (1, [(5, 0, True)])


async def test_a_reorg_is_told_as_a_whole(chain: GrowingChain, clock: ManualClock) -> None:
    chain.mine(registers=True)
    follower, notes = follow(chain, clock)
    await look(follower, clock)
    assert len(follower.view.latest.providers) == 1
    chain.reorganise(4, then=3)
    await look(follower, clock)
    assert notes.told[-1] == (7, 0, True)
    assert (follower.view.latest.providers, follower.reorg_count) == ({}, 1)


async def test_a_reorg_below_the_final_block_builds_the_view_anew(chain: GrowingChain, clock: ManualClock) -> None:
    chain.mine(10, registers=True)
    follower, notes = follow(chain, clock)
    await look(follower, clock)
    chain.reorganise(5, then=20)
    await look(follower, clock)
    assert (follower.block_number, len(follower.view.final.providers)) == (25, 1)
    assert notes.told[-1][2]


async def test_chain_time_runs_on_between_two_blocks(chain: GrowingChain, clock: ManualClock) -> None:
    follower, _ = follow(chain, clock)
    assert follower.chain_unix_s() == 0
    await look(follower, clock)
    assert follower.chain_unix_s() == START_S + 8
    clock.advance(7.5)
    assert follower.chain_unix_s() == START_S + 15
    chain.mine()
    await look(follower, clock)
    assert follower.chain_unix_s() == START_S + 10


async def test_the_time_of_the_final_block_is_exact_also_after_a_batch(chain: GrowingChain, clock: ManualClock) -> None:
    """Tables of snapshots depend on it, so all validators must have the same."""
    follower, _ = follow(chain, clock, depth=3)
    await look(follower, clock)
    assert (follower.view.final_block, follower.final_unix_s) == (2, START_S + 4)
    for _ in range(4):
        chain.mine()
        await look(follower, clock)
    assert (follower.view.final_block, follower.final_unix_s) == (6, START_S + 12)
    assert len(follower._times) <= 3


async def test_before_our_first_block_is_final_there_is_no_final_time(clock: ManualClock) -> None:
    chain = GrowingChain()
    chain.mine(2)
    follower, _ = follow(chain, clock, depth=6)
    await look(follower, clock)
    assert (follower.is_synced, follower.final_unix_s) == (True, 0)


async def test_a_node_that_is_away_for_long_makes_the_validator_unsynced(
    chain: GrowingChain, clock: ManualClock
) -> None:
    follower, notes = follow(chain, clock)
    await look(follower, clock)
    chain.error = ChainUnavailable("away")
    await look(follower, clock)
    assert (follower.is_synced, follower.is_away) == (True, False), "one lost answer is nothing"
    clock.advance(AWAY_S)
    await look(follower, clock)
    assert (follower.is_synced, follower.is_away) == (False, True)
    chain.error = None
    await look(follower, clock)
    assert (follower.is_synced, follower.is_away, notes.told[-1][2]) == (True, False, True)


async def test_a_range_that_the_node_refuses_does_not_count_as_synced(chain: GrowingChain, clock: ManualClock) -> None:
    class Picky(GrowingChain):
        async def logs(self, first: int, last: int, addresses: Sequence[str]) -> list[RawLog]:
            if last > first:
                raise ChainRefused("too large a range")
            return await super().logs(first, last, addresses)

    picky = Picky(headers=chain.headers)
    follower, notes = follow(picky, clock)
    await look(follower, clock)
    assert (follower.is_synced, notes.told) == (False, [])
    for _ in range(10):
        await look(follower, clock)
    assert follower.is_synced


async def test_another_chain_ends_it(chain: GrowingChain, clock: ManualClock) -> None:
    follower, _ = follow(chain, clock)
    await look(follower, clock)
    other = GrowingChain(fork=9)
    other.mine(9)
    anything: Any = other
    follower._reader.client = anything
    with pytest.raises(WrongChain):
        await look(follower, clock)


async def test_an_event_of_another_release_ends_it(
    chain: GrowingChain, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, _ = follow(chain, clock)
    chain.mine(registers=True)

    def decode(_contracts: Contracts, logs: Sequence[RawLog]) -> list[ChainEvent]:
        position = (logs[0].block_number, 0, logs[0].block_hash, logs[0].tx_hash, 0)
        return [ChainEvent(*position, contract="provider_registry", event="StatusChanged", args={}, unix_s=1)]

    monkeypatch.setattr(Contracts, "decode_logs", decode)
    with pytest.raises(ContractsOutdated, match="StatusChanged"):
        await look(follower, clock)


async def test_looks_out_of_turn_are_kept_apart(chain: GrowingChain, clock: ManualClock) -> None:
    """Strangers cause them by messages about orders that do not exist."""
    follower, _ = follow(chain, clock)
    await look(follower, clock)
    chain.asked = 0
    clock.advance(1.0)
    await follower.look_soon()
    waiting = [asyncio.create_task(follower.look_soon()) for _ in range(20)]
    await asyncio.sleep(0)
    assert chain.asked == 1
    clock.advance(LOOKS_APART_S)
    await asyncio.gather(*waiting)
    assert chain.asked == 2


async def test_it_looks_again_and_again(chain: GrowingChain, clock: ManualClock) -> None:
    follower, notes = follow(chain, clock)
    running = asyncio.create_task(follower.run(poll_s=lambda: 0.25))
    for _ in range(3):
        chain.mine()
        for _ in range(30):
            await asyncio.sleep(0)
        clock.advance(0.25)
    for _ in range(30):
        await asyncio.sleep(0)
    assert follower.block_number == 7
    assert len(notes.told) >= 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
