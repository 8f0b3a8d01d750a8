"""The market as a gateway knows it: the index's events in Postgres, folded in memory.

It is built from the stored events when a process starts, and then follows the index. If the index removed events that
it has seen (a reorg, or an index that was started over), it is rolled back or built anew. Nothing here asks the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, NoChain
from sparewatt.core.log import Logger
from sparewatt.market.chain_view import ChainView
from sparewatt.market.event_fold import EVENT_NAMES, UnreadableEvent
from sparewatt.store.chain import EventPosition
from sparewatt.store.market_events import MarketEvents

_log = Logger("sparewatt.leasing")
FOLLOW_S = 0.5
"""Between two looks at the index."""
EVENTS_PER_READ = 200
"""Folded within a few milliseconds, so that answers do not wait for them."""
READS_PER_STEP = 500
"""Of one look: other work of the process has its turn after 100,000 events."""
_BEFORE_ALL: EventPosition = (-1, 2**31 - 1)
_BEHIND_ALL: EventPosition = (2**62, 0)


class EventSource(Protocol):
    """Implemented by MarketEventStore."""

    async def events_after(
        self, position: EventPosition, *, names: Sequence[str], limit: int
    ) -> MarketEvents | None: ...


@dataclass(slots=True)
class MarketIndex:
    source: EventSource
    has_chain: bool
    _view: ChainView | None = field(default=None, init=False)
    _generation: int = field(default=0, init=False)
    _position: EventPosition = field(default=_BEFORE_ALL, init=False)
    _is_complete: bool = field(default=False, init=False)
    _problem: str | None = field(default=None, init=False)

    def view(self) -> ChainView:
        """Raises NoChain, ChainUnavailable while it is being built, ContractsOutdated if it cannot be read."""
        if not self.has_chain:
            raise NoChain("The lease market")
        if self._problem is not None:
            raise ContractsOutdated(
                f"The market cannot be read: {self._problem}. If 'sparewatt chain status' names no other release, "
                "this is a mistake of ours: please report it, with the gateway's log."
            )
        if self._view is None or not self._is_complete:
            raise ChainUnavailable("The market is still being read from the chain. Try again.", retry_after_s=FOLLOW_S)
        return self._view

    async def follow(self) -> None:
        """Take in what the index has new, up to a bound."""
        if not self.has_chain:
            return
        for _ in range(READS_PER_STEP):
            found = await self.source.events_after(self._position, names=EVENT_NAMES, limit=EVENTS_PER_READ)
            if found is None:
                self._start_over(None)
                return
            if self._problem is not None and found.generation == self._generation:
                return  # the same events again
            if self._view is None or found.generation != self._generation or found.depth != self._view.depth:
                self._adapt(self._view, found)
                continue  # what was read belongs to a position that is gone
            if self._take_in(self._view, found):
                return

    def _take_in(self, view: ChainView, found: MarketEvents) -> bool:
        """True if nothing more is there, or nothing more can be read."""
        is_last = len(found.events) < EVENTS_PER_READ
        try:
            to_block = found.indexed_block if is_last else found.events[-1].block_number
            view.advance(found.events, to_block=max(to_block, view.latest_block))
        except UnreadableEvent as error:
            _log.warning("market_events_unreadable", why=str(error), cause=repr(error.__cause__))
            self._problem, self._position = str(error), _BEHIND_ALL
            return True
        if found.events:
            self._position = (found.events[-1].block_number, found.events[-1].log_index)
        if is_last:
            self._is_complete = True
        return is_last

    def _adapt(self, view: ChainView | None, found: MarketEvents) -> None:
        """Roll back to what the last removal left; after more than one removal, or a deep one, begin again."""
        is_next = self._problem is None and found.generation == self._generation + 1
        if view is None or not is_next or found.depth != view.depth or found.common_block < view.final_block:
            self._start_over(found)
            return
        view.roll_back(to_block=found.common_block)
        self._generation = found.generation
        self._position = min(self._position, (found.common_block, _BEFORE_ALL[1]))

    def _start_over(self, found: MarketEvents | None) -> None:
        self._view = None if found is None else ChainView(depth=found.depth, start_block=found.start_block)
        self._generation = 0 if found is None else found.generation
        self._position = _BEFORE_ALL
        self._is_complete = False
        self._problem = None
