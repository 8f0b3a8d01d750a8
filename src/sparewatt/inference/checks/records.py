"""Where each node stands after the checks of its answers, as this process knows it: Postgres has it, and what other
gateways judged is read every few seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.store.check_verdicts import StoredRecord
from sparewatt.trust.checks.standing import CheckRecord

_NEW = CheckRecord()


class CheckRecords:
    """`own`: accounts whose nodes the operator vouches for. They are trusted, and paid at once."""

    def __init__(self, own: frozenset[AccountId] = frozenset()) -> None:
        self.own = own
        self.version = 0
        """Of the latest record that was read."""
        self._records: dict[NodeId, CheckRecord] = {}
        self._listeners: list[Callable[[NodeId, CheckRecord], None]] = []

    def subscribe(self, listener: Callable[[NodeId, CheckRecord], None]) -> None:
        """Called with every record that changes."""
        self._listeners.append(listener)

    def of(self, node_id: NodeId) -> CheckRecord:
        return self._records.get(node_id, _NEW)

    def set(self, node_id: NodeId, record: CheckRecord) -> None:
        self._records[node_id] = record
        for listener in self._listeners:
            listener(node_id, record)

    def load(self, stored: list[StoredRecord]) -> None:
        for node_id, record, version in stored:
            self.version = max(self.version, version)
            if record != self.of(node_id):
                self.set(node_id, record)

    def is_own(self, owner: AccountId | None) -> bool:
        return owner in self.own

    def withholds(self, node_id: NodeId, owner: AccountId) -> bool:  # noqa: ARG002 (of every node of a stranger)
        """Whether what the node earns waits for its next passed check."""
        return owner not in self.own
