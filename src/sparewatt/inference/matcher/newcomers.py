"""Nodes that this network has not timed with a model yet. What a node says of its own speed opens no door: until
gateways have timed it, it has a small share of the model's jobs, and counts as no faster than the median of the timed.

Whose turn it is goes round by owner, then by node: ten nodes of one owner have one owner's share. Where no node of a
model was timed, all of them share its jobs in that order. Everything here is bounded by the nodes in the table. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest

from sparewatt.core.ids import AccountId, NodeId

TIMED_JOBS = 3
"""Whole answers that gateways have timed before a node is ranked by them alone."""
TRIAL_SHARE = 0.05
"""Of a model's jobs, how many may go to nodes that were not timed, while others could have them."""
TRIALS_AHEAD = 10.0
"""How many of them may come at once: so many are there at first, too, so that a small network is timed at once."""
FIRST_JOBS_MAX = 2
"""Jobs that wait for a node that was not timed, if another node can have the next."""
TURNS_KEPT, OWNERS_LOOKED = 8, 64
"""Newcomers whose turn it is, at once; and owners among whose nodes they are looked for."""
OVERFLOW_WAIT_S = 1.0
"""If even the best of the timed nodes has a longer queue, the others compete with it, as fast as the median."""
TRIAL_SLOWER_MAX, TRIAL_LATER_S = 2.0, 1.0
"""A node that by its own word would be later than this, compared with the best timed one, is not tried: it would lose
anyway, and its word costs it the job."""


@dataclass(slots=True)
class _Turns:
    """The newcomers of one model, in the order of their turns."""

    owners: dict[NodeId, AccountId | None] = field(default_factory=dict)
    by_owner: dict[AccountId | None, dict[NodeId, None]] = field(default_factory=dict)
    trials: float = TRIALS_AHEAD


class Newcomers:
    """Of one table, by model."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turns] = {}

    def count(self, model: str) -> int:
        turns = self._turns.get(model)
        return len(turns.owners) if turns is not None else 0

    def nodes(self, model: str) -> Sequence[NodeId]:
        turns = self._turns.get(model)
        return tuple(turns.owners) if turns is not None else ()

    def everyone(self) -> list[NodeId]:
        """All nodes that are new with some model."""
        return sorted({node_id for turns in self._turns.values() for node_id in turns.owners})

    def add(self, model: str, node_id: NodeId, owner: AccountId | None) -> None:
        """Its turn comes after all others of its owner."""
        turns = self._turns.setdefault(model, _Turns())
        if node_id in turns.owners:
            if turns.owners[node_id] == owner:
                return
            _take_out(turns, node_id)
        turns.owners[node_id] = owner
        turns.by_owner.setdefault(owner, {})[node_id] = None

    def discard(self, model: str, node_id: NodeId) -> None:
        turns = self._turns.get(model)
        if turns is not None and node_id in turns.owners:
            _take_out(turns, node_id)

    def forget(self, model: str) -> None:
        """No node has the model any more."""
        self._turns.pop(model, None)

    def may_try(self, model: str) -> bool:
        """Whether the share allows another trial now."""
        turns = self._turns.get(model)
        return turns is not None and bool(turns.owners) and turns.trials >= 1.0

    def turn(self, model: str, may: Callable[[NodeId], bool] | None = None) -> tuple[NodeId, ...]:
        """The next few that `may`, of as many owners as there are."""
        turns = self._turns.get(model)
        if turns is None:
            return ()
        columns = [islice(nodes, TURNS_KEPT) for nodes in islice(turns.by_owner.values(), OWNERS_LOOKED)]
        found = (node_id for nodes in zip_longest(*columns) for node_id in nodes if node_id is not None)
        return tuple(islice(found if may is None else filter(may, found), TURNS_KEPT))

    def note_job(self, model: str, node_id: NodeId) -> None:
        """A job of the model goes to this node: it earns a share of a trial, or is one."""
        turns = self._turns.get(model)
        if turns is None:
            return
        turns.trials = min(TRIALS_AHEAD, turns.trials + TRIAL_SHARE)
        if node_id in turns.owners:
            turns.trials = max(0.0, turns.trials - 1.0)
            owner = turns.owners[node_id]
            nodes = turns.by_owner.pop(owner)
            nodes[node_id] = nodes.pop(node_id)
            turns.by_owner[owner] = nodes


def _take_out(turns: _Turns, node_id: NodeId) -> None:
    owner = turns.owners.pop(node_id)
    nodes = turns.by_owner[owner]
    del nodes[node_id]
    if not nodes:
        del turns.by_owner[owner]
