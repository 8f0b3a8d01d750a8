"""Which nodes that are away stay in the matcher's table, and which keep their models there: a bound on memory. Pure.

A client that asks for a model whose node restarts is told to try again, not that there is no such model. But whoever
joins and leaves with ever new models must not fill a gateway's memory: nodes that never served share one small budget,
those that did have one per account. Beyond it, who left first loses its models; it brings them again when it joins.
Of nodes that never served only the last thousand stay in the table at all.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.inference.fleet.fleet_limits import UNSERVED_NODES_KEPT

UNSERVED_MODELS_MAX = 200
"""Of all nodes that never served a job: 2 MB."""


@dataclass(slots=True)
class AwayPool:
    models_max: int
    nodes: OrderedDict[NodeId, int] = field(default_factory=OrderedDict)
    """How many models each has; who left first comes first."""
    models: int = 0

    def add(self, node_id: NodeId, models: int) -> list[NodeId]:
        self.nodes[node_id] = models
        self.models += models
        dropped = []
        while self.models > self.models_max:
            first, count = self.nodes.popitem(last=False)
            self.models -= count
            dropped.append(first)
        return dropped

    def remove(self, node_id: NodeId) -> None:
        self.models -= self.nodes.pop(node_id, 0)


class AwayModels:
    def __init__(
        self,
        *,
        per_account_max: int,
        unserved_max: int = UNSERVED_MODELS_MAX,
        unserved_nodes_max: int = UNSERVED_NODES_KEPT,
    ) -> None:
        self._per_account_max = per_account_max
        self._unserved_nodes_max = unserved_nodes_max
        self._unserved_nodes: OrderedDict[NodeId, None] = OrderedDict()
        """With models or without; who left first comes first."""
        self._unserved = AwayPool(unserved_max)
        self._served: dict[AccountId, AwayPool] = {}
        self._pool_of: dict[NodeId, AccountId | None] = {}
        """None for the pool of those that never served."""

    def __len__(self) -> int:
        return len(self._pool_of)

    def leave(self, node_id: NodeId, owner: AccountId, *, models: int, has_served: bool) -> list[NodeId]:
        """A node is away. Returns the nodes that lose their models, which may be this one."""
        self.join(node_id)
        if not has_served:
            self._unserved_nodes[node_id] = None
        if not models:
            return []
        account = owner if has_served else None
        self._pool_of[node_id] = account
        dropped = self._pool(account).add(node_id, models)
        for each in dropped:
            del self._pool_of[each]
        self._release(account)
        return dropped

    def join(self, node_id: NodeId) -> None:
        """It is back, or forgotten."""
        self._unserved_nodes.pop(node_id, None)
        if node_id in self._pool_of:
            account = self._pool_of.pop(node_id)
            self._pool(account).remove(node_id)
            self._release(account)

    def take_surplus(self) -> list[NodeId]:
        """Nodes that have to leave the table: of those that never served, who left first."""
        surplus = len(self._unserved_nodes) - self._unserved_nodes_max
        return [self._unserved_nodes.popitem(last=False)[0] for _ in range(surplus)]

    def _pool(self, account: AccountId | None) -> AwayPool:
        if account is None:
            return self._unserved
        return self._served.setdefault(account, AwayPool(self._per_account_max))

    def _release(self, account: AccountId | None) -> None:
        if account is not None and not self._served[account].nodes:
            del self._served[account]
