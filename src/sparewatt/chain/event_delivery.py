"""Hands final events to whoever acts on them, in the chain's order: a deposit to the ledger, a lookup to the market.

Each event is handed over at least once; a crash between acting and noting repeats it. So whoever acts does it under
`business_id(event)`, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from sparewatt.chain.model import hex_of
from sparewatt.core.limits import DELIVERED_AT_ONCE
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import ChainStore

EventHandler = Callable[[ChainEvent], Awaitable[None]]


def business_id(event: ChainEvent) -> str:
    """The same for the same event, also after the chain put it into another block."""
    return f"{event.contract}.{event.event}:{hex_of(event.tx_hash)}:{event.ordinal}"


class EventDelivery:
    """One reader of some events, named `contract.event`, with its own place in the index."""

    def __init__(
        self, store: ChainStore, *, reader: str, names: Sequence[str], depth: int, handle: EventHandler
    ) -> None:
        self._store = store
        self._reader = reader
        self._names = tuple(names)
        self._depth = depth
        self._handle = handle

    async def step(self) -> bool:
        """Hand over what became final. True when there may be more."""
        index = await self._store.index()
        if index is None:
            return False
        place = await self._store.reader_position(self._reader, start_block=index.start_block)
        final_block = index.block_number - self._depth + 1
        events = await self._store.events_after(
            place, up_to_block=final_block, names=self._names, limit=DELIVERED_AT_ONCE
        )
        for event in events:
            await self._handle(event)
            to = (event.block_number, event.log_index)
            await self._store.move_reader(self._reader, seen=place, to=to)
            place = to
        return len(events) == DELIVERED_AT_ONCE
