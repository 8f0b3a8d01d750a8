"""Delivers final chain events to a handler, in the chain's order and at least once.

A crash between handling an event and storing the reader's position delivers the event again. A handler therefore acts
under `business_id(event)`, its idempotency key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sparewatt.chain.model import hex_of
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import ChainStore

EVENTS_PER_STEP = 100
EventHandler = Callable[[ChainEvent], Awaitable[None]]


def business_id(event: ChainEvent) -> str:
    """The same for the same event, also after a reorg put it into another block."""
    return f"{event.contract}.{event.event}:{hex_of(event.tx_hash)}:{event.ordinal}"


@dataclass(frozen=True, slots=True)
class EventDelivery:
    """One reader with its own position in the index."""

    store: ChainStore
    reader: str
    names: Sequence[str]
    """Of the events, written `contract.event`."""
    depth: int
    handle: EventHandler

    async def step(self) -> bool:
        """Deliver what became final. True if there may be more."""
        index = await self.store.index()
        if index is None:
            return False
        position = await self.store.reader_position(self.reader, start_block=index.start_block)
        final_block = index.block_number - self.depth + 1
        events = await self.store.events_after(
            position, up_to_block=final_block, names=self.names, limit=EVENTS_PER_STEP
        )
        for event in events:
            await self.handle(event)
            to = (event.block_number, event.log_index)
            await self.store.move_reader(self.reader, seen=position, to=to)
            position = to
        return len(events) == EVENTS_PER_STEP
