"""The tier of each node, as `trust/tiers.py` decided it last. A node without a row is of the community."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import NODES_MAX
from sparewatt.store.connection_pool import Store
from sparewatt.trust.tiers import Tier


@dataclass(frozen=True, slots=True)
class NodeTier:
    tier: Tier
    since_unix_s: float


class NodeTierStore(Store):
    async def put(self, tiers: Mapping[NodeId, Tier], *, unix_s: float) -> None:
        """All or none."""
        await self._pool.execute("put_node_tiers", list(tiers), [tier.value for tier in tiers.values()], unix_s)

    async def all(self) -> dict[NodeId, NodeTier]:
        """Of every node that has one."""
        rows = await self._pool.rows("node_tiers", NODES_MAX)
        return {NodeId(row["node_id"]): NodeTier(Tier(row["tier"]), row["since_unix_s"]) for row in rows}
