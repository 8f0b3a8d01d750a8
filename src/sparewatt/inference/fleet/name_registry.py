"""Names of nodes. A name belongs to the account whose node used it first: a policy's name gets no stranger.

Another account's node that comes with the same name is called by it and the start of its id.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import NAME_CHARS_MAX

_MARK_CHARS = 7


@dataclass(slots=True)
class NameHolders:
    owner: AccountId
    count: int = 0


class NameRegistry:
    def __init__(self) -> None:
        self._held: dict[str, NameHolders] = {}
        self._of: dict[NodeId, str] = {}

    def claim(self, node_id: NodeId, owner: AccountId, name: str) -> str:
        """What the node may be called."""
        self.release(node_id)
        held = self._held.get(name.lower())
        if held is not None and held.owner != owner:
            name = f"{name[: NAME_CHARS_MAX - _MARK_CHARS]}~{node_id[2:8]}"
        bearers = self._held.setdefault(name.lower(), NameHolders(owner))
        bearers.count += 1
        self._of[node_id] = name.lower()
        return name

    def release(self, node_id: NodeId) -> None:
        """The node is forgotten: another account may use its name."""
        before = self._of.pop(node_id, None)
        if before is None:
            return
        self._held[before].count -= 1
        if not self._held[before].count:
            del self._held[before]
