"""The market as one follower of the chain sees it, at two heads. Pure: it is told of blocks, and reads none itself.

`latest` is the state at the newest block known: a lookup is acted on at first sight. `final` is the state at money's
depth, `depth` blocks deep: what moves money is read there. After a reorg above the final block the view is rolled back;
after a deeper one it is built anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparewatt.market.chain_records import MarketState
from sparewatt.market.event_fold import apply_event
from sparewatt.protocol.contracts.chain_events import ChainEvent


class RollbackTooDeep(ValueError):
    """The reorg reaches below the final block: the view has to be built anew."""


class ChainView:
    def __init__(self, *, depth: int, start_block: int = 0) -> None:
        """`depth` counts the event's own block: 1 means that every block is final at once."""
        if depth < 1:
            raise ValueError("a depth is at least 1")
        self.depth = depth
        self.latest = MarketState()
        self.final = MarketState()
        self.latest_block = start_block - 1
        self.final_block = start_block - 1
        self.latest_unix_s = 0
        """The time of the newest event: the chain is at least so far."""
        self._position = (start_block - 1, -1)
        self._not_final: deque[ChainEvent] = deque()

    def advance(self, events: Sequence[ChainEvent], *, to_block: int) -> None:
        """Take in the events up to a block, in the chain's order. Raises ValueError if they are not next."""
        if to_block < self.latest_block:
            raise ValueError(f"block {to_block} is behind {self.latest_block}: roll back first")
        for event in events:
            position = (event.block_number, event.log_index)
            if position <= self._position or event.block_number > to_block:
                raise ValueError(f"the event at {position} does not follow {self._position}")
            self._position = position
            apply_event(self.latest, event)
            self.latest_unix_s = max(self.latest_unix_s, event.unix_s)
            self._not_final.append(event)
        self.latest_block = to_block
        self._finalize()

    def roll_back(self, *, to_block: int) -> None:
        """Forget what came after a block. Raises RollbackTooDeep."""
        if to_block < self.final_block:
            raise RollbackTooDeep(f"block {self.final_block} was final; the chain is common up to {to_block} only")
        if to_block >= self.latest_block:
            return
        kept = [event for event in self._not_final if event.block_number <= to_block]
        self.latest = self.final.copy()
        self.latest_block, self._position = self.final_block, (self.final_block, -1)
        self._not_final.clear()
        self.advance(kept, to_block=to_block)

    def _finalize(self) -> None:
        self.final_block = max(self.final_block, self.latest_block - self.depth + 1)
        while self._not_final and self._not_final[0].block_number <= self.final_block:
            apply_event(self.final, self._not_final.popleft())
