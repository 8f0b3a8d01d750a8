"""A store of node results that is a list."""

from __future__ import annotations

from collections.abc import Sequence

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import NodeId
from sparewatt.store.node_results import NodeResultCount, NodeResultStore
from tests.unit.gateway.small_gateway import NoPool


class Remembering(NodeResultStore):
    def __init__(self) -> None:
        super().__init__(NoPool())
        self.is_away = False
        self.kept: list[NodeResultCount] = []

    async def add(self, days: Sequence[NodeResultCount]) -> None:
        if self.is_away:
            raise StoreUnavailable("away")
        self.kept += days

    async def counts_of(self, node_id: NodeId) -> list[NodeResultCount]:
        return [day for day in self.kept if day.node_id == node_id]
