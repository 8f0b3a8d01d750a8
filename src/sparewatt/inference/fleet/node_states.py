"""How each node looks from this gateway, over all of its processes."""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher.node_row import HealthRules, NodeRow, NodeState, state_of
from sparewatt.inference.matcher.table import NodeTable


class NodeStates:
    def __init__(
        self,
        table: NodeTable,
        *,
        health: HealthRules,
        clock: Clock,
        is_elsewhere: Callable[[NodeId], bool] = lambda _: False,
    ) -> None:
        """`is_elsewhere`: whether another process of this gateway has a link to a node."""
        self._table = table
        self._health = health
        self._clock = clock
        self._is_elsewhere = is_elsewhere

    def get(self, node_id: NodeId) -> NodeRow | None:
        return self._table.get(node_id)

    def of(self, row: NodeRow) -> NodeState:
        return self._of(row, self._clock.now_s())

    def all(self) -> list[tuple[NodeRow, NodeState]]:
        now_s = self._clock.now_s()
        return [(row, self._of(row, now_s)) for row in self._table]

    def _of(self, row: NodeRow, now_s: float) -> NodeState:
        state = state_of(row, now_s=now_s, rules=self._health)
        return NodeState.ONLINE if state is NodeState.OFFLINE and self._is_elsewhere(row.id) else state
