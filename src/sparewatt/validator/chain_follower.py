"""The market as the validator's own chain node tells it: reads blocks, folds their events, tells its listeners.

It starts at the block of the first contract, acts on a block at first sight, and rolls back with the chain. Nothing is
stored: the chain is read again after a restart. While nothing happens a look is one small request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainError, ContractsOutdated, WrongChain
from sparewatt.core.log import Logger
from sparewatt.evm.client import EvmClient
from sparewatt.evm.log_reader import BlockBatch, LogReader, Reorg
from sparewatt.market.chain_view import ChainView, RollbackTooDeep
from sparewatt.market.event_fold import UnreadableEvent
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.validator.deployment import MarketDeployment

_log = Logger("sparewatt.validator")
AWAY_S = 5.0
"""Without an answer of the chain's node for this long, the validator is not synced."""
LOOKS_APART_S = 0.05
STEPS_PER_LOOK = 10_000
"""Batches of one look: five million blocks. A chain that grows faster than it is read is followed in the next look."""


class ChainListener(Protocol):
    def on_chain(self, view: ChainView, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        """The view has changed. `is_whole`: anything may differ (the first look, or a reorg), not only by `events`."""
        ...


class ChainTimes(Protocol):
    """What of the chain's time matters outside. Implemented by MarketFollower."""

    head_unix_s: int
    final_unix_s: int

    def chain_unix_s(self) -> int: ...


@dataclass(slots=True)
class MarketFollower:
    client: EvmClient
    deployment: MarketDeployment
    clock: Clock
    depth: int
    """Blocks after which an event is final."""
    listeners: Sequence[ChainListener] = ()
    on_events: Callable[[Sequence[ChainEvent]], None] = lambda _: None
    """Gets the events of every block that is read, also of those before the first look was complete."""
    view: ChainView = field(init=False)
    is_synced: bool = field(default=False, init=False)
    head_unix_s: int = field(default=0, init=False)
    """The time of the newest block that was read."""
    final_unix_s: int = field(default=0, init=False)
    """The time of the newest final block."""
    _reader: LogReader = field(init=False)
    _head_seen_at_s: float = field(default=0.0, init=False)
    _answered_at_s: float = field(default=0.0, init=False)
    _is_away: bool = field(default=False, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _head_number: int = field(default=0, init=False)
    """The chain's height when the last batch was read."""
    _looked_at_s: float = field(default=float("-inf"), init=False)
    _times: dict[int, int] = field(default_factory=dict, init=False)
    """Times of the newest blocks, as far as they were read one by one."""

    def __post_init__(self) -> None:
        self._begin()
        self._answered_at_s = self.clock.now_s()

    @property
    def block_number(self) -> int:
        return self.view.latest_block

    @property
    def reorg_count(self) -> int:
        return self._reader.reorg_count

    def chain_unix_s(self) -> int:
        """Chain time as it runs on: the newest block's time and the seconds since it was seen."""
        return self.head_unix_s + int(self.clock.now_s() - self._head_seen_at_s) if self.head_unix_s else 0

    async def run(self, *, poll_s: Callable[[], float]) -> None:
        """For ever. Raises WrongChain, ContractsOutdated."""
        while True:
            started_at_s = self.clock.now_s()
            await self.look()
            await sleep_until(self.clock, started_at_s + poll_s())

    async def look_soon(self) -> None:
        """A look out of turn. Strangers may cause it, so there is a pause between two. Raises as `look` does."""
        asked_at_s = self.clock.now_s()
        if asked_at_s < self._looked_at_s + LOOKS_APART_S:
            await sleep_until(self.clock, self._looked_at_s + LOOKS_APART_S)
        if self._looked_at_s <= asked_at_s:
            await self.look()

    async def look(self) -> None:
        """Take in everything that is new. Raises WrongChain, ContractsOutdated; other trouble is left to the next."""
        asked_at_s = self.clock.now_s()
        async with self._lock:
            if self._looked_at_s > asked_at_s:
                return  # another look began after this one was asked for
            self._looked_at_s = self.clock.now_s()
            await self._look()

    async def _look(self) -> None:
        try:
            for _ in range(STEPS_PER_LOOK):
                if await self._step():
                    break
        except (WrongChain, ContractsOutdated):
            raise
        except ChainError as error:
            self._note_away(error)
            return
        self._answered_at_s = self.clock.now_s()
        if self._is_away:
            self._is_away = False
            _log.info("chain_answers_again")

    @property
    def is_away(self) -> bool:
        """Whether the chain's node has not answered for a while."""
        return self._is_away and self.clock.now_s() - self._answered_at_s > AWAY_S

    # internals

    async def _step(self) -> bool:
        """True if nothing more is new."""
        step = await self._reader.step()
        match step:
            case None:
                self._note_synced()
                return True
            case Reorg():
                self._roll_back(step)
                return False
            case BlockBatch():
                await self._advance(step)
                return False

    async def _advance(self, batch: BlockBatch) -> None:
        try:
            self.view.advance(batch.events, to_block=batch.block.number)
        except UnreadableEvent as error:
            raise ContractsOutdated(f"The chain has an event that this release cannot read: {error}.") from None
        self._head_number = batch.head.number
        self.head_unix_s, self._head_seen_at_s = batch.block.unix_s, self.clock.now_s()
        self._times[batch.block.number] = batch.block.unix_s
        self.final_unix_s = await self._time_of(self.view.final_block)
        self.on_events(batch.events)
        if self.is_synced:
            self._tell(batch.events, is_whole=False)

    async def _time_of(self, number: int) -> int:
        """Of a block that was read; asked for if it came in a batch with later ones. 0 before the first."""
        for old in [each for each in self._times if each < number]:
            del self._times[old]
        if number < max(0, self.deployment.start_block):
            return 0
        if number not in self._times:
            header = await self.client.header(number)
            self._times[number] = header.unix_s if header is not None else 0
        return self._times[number]

    def _roll_back(self, reorg: Reorg) -> None:
        _log.info("chain_reorganised", common_block=reorg.common_block)
        try:
            self.view.roll_back(to_block=reorg.common_block)
        except RollbackTooDeep:
            self._begin()
        self._times.clear()
        self.is_synced = False  # what came after the common block is told as a whole once it is read

    def _note_synced(self) -> None:
        """The reader also gives nothing where it has to ask again: then it is behind the head that it knows."""
        is_current = self.block_number >= max(self._head_number, self.deployment.start_block)
        if not self.is_synced and is_current:
            self.is_synced = True
            self._tell((), is_whole=True)

    def _tell(self, events: Sequence[ChainEvent], *, is_whole: bool) -> None:
        for listener in self.listeners:
            listener.on_chain(self.view, events, is_whole=is_whole)

    def _note_away(self, error: ChainError) -> None:
        if not self._is_away:
            self._is_away = True
            _log.warning("chain_does_not_answer", why=error.message)
        if self.clock.now_s() - self._answered_at_s > AWAY_S:
            self.is_synced = False

    def _begin(self) -> None:
        deployment = self.deployment
        self.view = ChainView(depth=self.depth, start_block=deployment.start_block)
        self._reader = LogReader(
            self.client,
            deployment.contracts,
            deployment.identity,
            deployment.start_block,
            trusts_bloom=deployment.is_local,
        )
