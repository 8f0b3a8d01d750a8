"""The index's events for gateways, which fold them in memory, and whether events that they have seen were removed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import asyncpg

from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.store.chain import EventPosition
from sparewatt.store.connection_pool import Notification, Store

CHANNEL = "market_events"


@dataclass(frozen=True, slots=True)
class MarketEvents:
    """Some events, and the index at the same moment."""

    generation: int
    """Grows whenever events are removed from the index."""
    common_block: int
    """The last removal left everything up to this block."""
    start_block: int
    indexed_block: int
    depth: int
    attempt_s: int
    """The time of an attempt, as the chain's process read it from the contracts."""
    events: tuple[ChainEvent, ...]


class MarketEventStore(Store):
    def changed(self) -> AbstractAsyncContextManager[Notification]:
        """Set whenever events came into the index or were removed from it."""
        return self._pool.listening(CHANNEL)

    async def events_after(self, position: EventPosition, *, names: Sequence[str], limit: int) -> MarketEvents | None:
        """In the chain's order; `names` are written `contract.event`. None while there is no index."""
        contracts, _, events = zip(*(name.partition(".") for name in names), strict=True)
        rows = await self._pool.rows("market_events", *position, contracts, events, limit)
        if not rows:
            return None
        found = tuple(_event(row) for row in rows if row["block_number"] is not None)
        index = rows[0]
        return MarketEvents(
            generation=index["generation"],
            common_block=index["common_block"],
            start_block=index["start_block"],
            indexed_block=index["indexed_block"],
            depth=index["depth"],
            attempt_s=index["attempt_s"],
            events=found,
        )

    async def events_of_lease(self, order_id: str, *, names: Sequence[str], limit: int) -> list[ChainEvent]:
        """Of one order and its lease, in the chain's order."""
        contracts, _, events = zip(*(name.partition(".") for name in names), strict=True)
        return [_event(row) for row in await self._pool.rows("events_of_lease", order_id, contracts, events, limit)]


def _event(row: asyncpg.Record) -> ChainEvent:
    return ChainEvent(
        block_number=row["block_number"],
        log_index=row["log_index"],
        block_hash=row["block_hash"],
        tx_hash=row["tx_hash"],
        ordinal=row["ordinal"],
        contract=row["contract"],
        event=row["event"],
        args=json.loads(row["args"]),
        unix_s=row["unix_s"],
    )
