"""The index's events in Postgres, folded in memory into the market's state. Gateways and the chain's process have one.

It is built from the stored events when a process starts, and then follows the index. If the index removed events that
it has seen (a reorg, or an index that was started over), it is rolled back or built anew. Nothing here asks the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.log import Logger
from sparewatt.market.chain_view import ChainView
from sparewatt.market.event_fold import EVENT_NAMES, UnreadableEvent
from sparewatt.store.chain import EventPosition
from sparewatt.store.market_events import MarketEvents

_log = Logger("sparewatt.market")
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
class MarketFold:
    source: EventSource
    built: ChainView | None = field(default=None, init=False)
    """None before there is an index. While it is not `is_complete` it lacks the newest events."""
    is_complete: bool = field(default=False, init=False)
    problem: str | None = field(default=None, init=False)
    """Why the events cannot be read."""
    attempt_s: int = field(default=0, init=False)
    """The network's: an attempt without a certificate is over after so long."""
    version: int = field(default=0, init=False)
    """Another one whenever the state changed."""
    generation: int = field(default=0, init=False)
    """Another one after events were removed from the index."""
    _position: EventPosition = field(default=_BEFORE_ALL, init=False)
    _changed: set[str] | None = field(default=None, init=False)

    def take_changed(self) -> set[str] | None:
        """Orders that events spoke of since the last call; None if any may have changed."""
        changed, self._changed = self._changed, set()
        return changed

    async def follow(self) -> None:
        """Take in what the index has new, up to a bound."""
        for _ in range(READS_PER_STEP):
            found = await self.source.events_after(self._position, names=EVENT_NAMES, limit=EVENTS_PER_READ)
            if found is None:
                self._start_over(None)
                return
            self.attempt_s = found.attempt_s
            if self.problem is not None and found.generation == self.generation:
                return  # the same events again
            if self.built is None or found.generation != self.generation or found.depth != self.built.depth:
                self._adapt(self.built, found)
                continue  # what was read belongs to a position that is gone
            if self._take_in(self.built, found):
                return

    def _take_in(self, view: ChainView, found: MarketEvents) -> bool:
        """True if nothing more is there, or nothing more can be read."""
        is_last = len(found.events) < EVENTS_PER_READ
        try:
            to_block = found.indexed_block if is_last else found.events[-1].block_number
            view.advance(found.events, to_block=max(to_block, view.latest_block))
        except UnreadableEvent as error:
            _log.warning("market_events_unreadable", why=str(error), cause=repr(error.__cause__))
            self.problem, self._position = str(error), _BEHIND_ALL
            return True
        if found.events:
            self.version += 1
            self._position = (found.events[-1].block_number, found.events[-1].log_index)
        if self._changed is not None:
            named = (event.args.get("order_id", event.args.get("lease_id")) for event in found.events)
            self._changed |= {each for each in named if each is not None}
        if is_last:
            self.is_complete = True
        return is_last

    def _adapt(self, view: ChainView | None, found: MarketEvents) -> None:
        """Roll back to what the last removal left; after more than one removal, or a deep one, begin again."""
        is_next = self.problem is None and found.generation == self.generation + 1
        if view is None or not is_next or found.depth != view.depth or found.common_block < view.final_block:
            self._start_over(found)
            return
        view.roll_back(to_block=found.common_block)
        self.generation = found.generation
        self._position = min(self._position, (found.common_block, _BEFORE_ALL[1]))
        self._changed = None
        self.version += 1

    def _start_over(self, found: MarketEvents | None) -> None:
        self.built = None if found is None else ChainView(depth=found.depth, start_block=found.start_block)
        self.generation = 0 if found is None else found.generation
        self._position = _BEFORE_ALL
        self.is_complete = False
        self.problem = None
        self._changed = None
        self.version += 1
