"""Whose each registered node is, also of those that are not in the table, and how many an account has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping

from sparewatt.core.ids import AccountId, NodeId


class NodeOwners(MutableMapping[NodeId, AccountId]):
    def __init__(self) -> None:
        self._owners: dict[NodeId, AccountId] = {}
        self._counts: Counter[AccountId] = Counter()

    def __getitem__(self, node_id: NodeId) -> AccountId:
        return self._owners[node_id]

    def __setitem__(self, node_id: NodeId, owner: AccountId) -> None:
        self.pop(node_id, None)
        self._owners[node_id] = owner
        self._counts[owner] += 1

    def __delitem__(self, node_id: NodeId) -> None:
        owner = self._owners.pop(node_id)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._owners)

    def __len__(self) -> int:
        return len(self._owners)

    def count_of(self, owner: AccountId) -> int:
        return self._counts[owner]
