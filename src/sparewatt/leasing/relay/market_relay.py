"""Keeps a gateway's market up to date and lets its parts act on each change.

New events wake it through Postgres at once. It also looks by itself: often while an auction is open, since nodes and
other processes come and go, and seldom otherwise, so that an idle market costs next to nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.errors import ChainUnavailable, ContractsOutdated, NoChain
from sparewatt.leasing.market_index import MarketIndex
from sparewatt.leasing.relay.collector import MatchCollector
from sparewatt.leasing.relay.lookup_relay import LookupRelay
from sparewatt.leasing.relay.lookups import MarketAddresses
from sparewatt.leasing.running.task_relay import TaskRelay
from sparewatt.market.chain_view import ChainView
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.connection_pool import Notification

BUSY_S = 0.5
"""Between two looks while an attempt is open."""
IDLE_S = 5.0
NODES_S = 0.5
"""Between two looks for nodes that came, which costs no query."""
TASKS, ORDERS, STAKES, MOVES = "task_manager", "deployment_order", "stake_registry", "lease_moves"


class ChangeSource(Protocol):
    """Implemented by MarketEventStore."""

    def changed(self) -> AbstractAsyncContextManager[Notification]: ...


class IndexSource(Protocol):
    """Implemented by ChainStore."""

    async def index(self) -> ChainIndexRow | None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class MarketRelay:
    index: MarketIndex
    changes: ChangeSource
    chain: IndexSource
    lookups: LookupRelay
    collector: MatchCollector
    tasks: TaskRelay
    _addresses: MarketAddresses | None = field(default=None, init=False)
    _generation: int = field(default=-1, init=False)

    async def run(self) -> None:
        """Until its connection is lost; whoever runs it starts it again. Raises StoreUnavailable."""
        async with self.changes.changed() as changed:
            while not changed.is_lost:
                changed.clear()
                await self.step()
                await self._wait(changed)

    async def step(self) -> None:
        """Take in what is new, and act on it."""
        await self.index.follow()
        view = self._view()
        addresses = await self._read_addresses() if view is not None else None
        if view is None or addresses is None:
            return
        changed = self.index.take_changed()
        await self.lookups.follow(view, changed, addresses, version=self.index.version, attempt_s=self.index.attempt_s)
        self.collector.follow(view, changed, addresses)
        await self.tasks.follow(view, changed, addresses, version=self.index.version)

    async def _wait(self, changed: asyncio.Event) -> None:
        """For events, or until the next look is due. Nodes that come meanwhile are told."""
        loop = asyncio.get_running_loop()
        is_busy = self.lookups.has_open or self.collector.has_open or self.tasks.has_pending or self._view() is None
        until_s = loop.time() + (BUSY_S if is_busy else IDLE_S)
        while not changed.is_set() and (left_s := until_s - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(NODES_S, left_s)):
                    await changed.wait()
            view = self._view()
            if view is not None and self._addresses is not None:
                self.lookups.tick(view, self._addresses, attempt_s=self.index.attempt_s)
                self.tasks.tick()

    @property
    def addresses(self) -> MarketAddresses | None:
        """None until the market is known."""
        return self._addresses

    def _view(self) -> ChainView | None:
        try:
            return self.index.view()
        except (NoChain, ChainUnavailable, ContractsOutdated):
            return None

    async def _read_addresses(self) -> MarketAddresses | None:
        """Of the contracts that the events come from; they change with the index's generation only."""
        if self._generation != self.index.generation:
            found = await self.chain.index()
            if found is None or not {TASKS, ORDERS, STAKES, MOVES} <= set(found.contracts):
                return None
            self._addresses = MarketAddresses(
                chain_id=found.chain_id,
                task_manager=found.contracts[TASKS].lower(),
                deployment_order=found.contracts[ORDERS].lower(),
                stake_registry=found.contracts[STAKES].lower(),
                lease_moves=found.contracts[MOVES].lower(),
            )
            self._generation = self.index.generation
        return self._addresses
