"""What the network itself knows of nodes, for policies: uptime by its history, and what auditors attest on the chain.

A node's own report has no part in it. The figures change slowly, so they are read every few minutes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import LOWEST_TIER, VerifiedFacts
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.market.attested_facts import attested_standards, auditors_of
from sparewatt.market.chain_records import MarketState, ProviderRecord
from sparewatt.store.history import DAY_S, HistoryStore
from sparewatt.trust.uptime import DAYS, uptime_of

READ_S = 60.0


async def no_tiers() -> Mapping[NodeId, str]:
    """Every node is of the lowest tier."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFactsReader:
    table: NodeTable
    history: HistoryStore
    market: Callable[[], MarketState | None]
    """None while the chain cannot be read, or on a network without one."""
    clock: Clock
    tiers: Callable[[], Awaitable[Mapping[NodeId, str]]] = no_tiers
    """The tier of each node that is above the lowest."""

    async def read(self) -> None:
        unix_s = self.clock.unix_s()
        since = (unix_s // DAY_S - DAYS + 1) * DAY_S
        uptimes = {NodeId(row.name): row for row in await self.history.node_uptimes(since_unix_s=since)}
        tiers, providers = await self.tiers(), self._providers()
        for row in list(self.table):
            seen, provider = uptimes.get(row.id), providers.get(row.id)
            facts = VerifiedFacts(
                uptime=None if seen is None else uptime_of(up_s=seen.up_s, known_s=seen.known_s, days=seen.days),
                compliance=attested_standards(provider, unix_s=unix_s) if provider is not None else frozenset(),
                attested_by=auditors_of(provider, unix_s=unix_s) if provider is not None else frozenset(),
                tier=tiers.get(row.id, LOWEST_TIER),
            )
            row.set_verified(facts)

    def _providers(self) -> dict[NodeId, ProviderRecord]:
        """By the key of the node that serves it."""
        state = self.market()
        records = state.providers.values() if state is not None else ()
        return {NodeId(record.node_key.lower()): record for record in records if record.node_key is not None}
