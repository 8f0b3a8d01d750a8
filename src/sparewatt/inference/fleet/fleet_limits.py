"""How many nodes and models an account may have here, and how often its nodes may join and report. Pure.

Every error says what the owner can do. None of them is final: a node that is refused dials again later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sparewatt.accounts.rate_limits import TokenBuckets
from sparewatt.core.errors import JoinRefused
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import MODELS_PER_NODE_MAX
from sparewatt.core.plural import pluralize

NODES_PER_ACCOUNT = 500
MODELS_PER_ACCOUNT = 1_000
"""Counted on each node that has them, while it is connected: each takes about 12 kB of a gateway's memory."""
UNSERVED_NODES_KEPT = 1_000
"""In memory, of nodes that never served and are away: 3 MB without their models."""
JOINS_BURST, JOINS_PER_S = 20, 1 / 3
"""Of one node: enough for a line that drops every few seconds."""
SPECS_BURST, SPECS_PER_S = 10, 1.0
"""Of one node, those that are written into the table; of others, the last one is, later."""
MODELS_BURST, MODELS_REFILL_S = 4, 10.0
"""All nodes of an account may join and report their models this many times at once, and once every so many seconds."""


@dataclass(frozen=True, slots=True)
class FleetBounds:
    """Set by the operator."""

    nodes_per_account: int = NODES_PER_ACCOUNT
    models_per_account: int = MODELS_PER_ACCOUNT
    models_per_node: int = MODELS_PER_NODE_MAX
    unserved_nodes_kept: int = UNSERVED_NODES_KEPT
    """Of all accounts together; not set by the operator."""

    def check(self, models: int, *, is_new: bool, nodes_known: int, others_models: int) -> None:
        """Raises JoinRefused. `is_new`: whether the node is none of the account's `nodes_known`.

        `others_models`: how many models the account's other connected nodes have.
        """
        if models > self.models_per_node:
            raise JoinRefused(
                f"This node reports {pluralize(models, 'model')}, this network takes {self.models_per_node} per node. "
                "Serve fewer, or ask its operator for a higher --models-per-node.",
                reason="models_per_node",
                final=False,
            )
        if is_new and nodes_known >= self.nodes_per_account:
            raise JoinRefused(
                f"Your account has {pluralize(nodes_known, 'node')}, as many as this network allows. A node that never "
                "served is forgotten a day after it left; or ask its operator for a higher --nodes-per-account.",
                reason="nodes_per_account",
                final=False,
            )
        if others_models + models > self.models_per_account:
            raise JoinRefused(
                f"Your other nodes report {pluralize(others_models, 'model')} and this one {models}; this network "
                f"takes {self.models_per_account} per account. Serve fewer, or ask its operator for a higher "
                "--models-per-account.",
                reason="models_per_account",
                final=False,
            )


class ModelTally:
    """How many models the connected nodes of each account have: a sum, since every join asks for it."""

    def __init__(self) -> None:
        self._by_node: dict[NodeId, tuple[AccountId, int]] = {}
        self._by_account: Counter[AccountId] = Counter()

    def put(self, node_id: NodeId, owner: AccountId, models: int) -> None:
        """A connected node has reported."""
        self.remove(node_id)
        self._by_node[node_id] = owner, models
        self._by_account[owner] += models

    def remove(self, node_id: NodeId) -> None:
        owner, models = self._by_node.pop(node_id, (None, 0))
        if owner is not None:
            self._by_account[owner] -= models
            if not self._by_account[owner]:
                del self._by_account[owner]

    def others(self, node_id: NodeId, owner: AccountId) -> int:
        """Models of the account's connected nodes without this one."""
        known = self._by_node.get(node_id)
        own = known[1] if known is not None and known[0] == owner else 0
        return self._by_account[owner] - own


@dataclass(slots=True)
class FleetRates:
    """Token buckets of nodes and of accounts. The clock comes in by argument."""

    models_per_account: int = MODELS_PER_ACCOUNT
    _joins: TokenBuckets = field(init=False)
    _specs: TokenBuckets = field(init=False)
    _models: TokenBuckets = field(init=False)

    def __post_init__(self) -> None:
        self._joins = TokenBuckets(burst=JOINS_BURST, per_s=JOINS_PER_S)
        self._specs = TokenBuckets(burst=SPECS_BURST, per_s=SPECS_PER_S)
        self._models = TokenBuckets(
            burst=MODELS_BURST * self.models_per_account, per_s=self.models_per_account / MODELS_REFILL_S
        )

    def check_join(self, node_id: NodeId, *, now_s: float) -> None:
        """A node that has proved its key. Raises JoinRefused if it comes too often."""
        _refuse_for(self._joins.take(node_id, now_s=now_s), "This node joins")

    def check_account(self, account: AccountId, *, models: int, now_s: float) -> None:
        """Raises JoinRefused if the account's nodes join too often for all the models that they bring."""
        _refuse_for(self._models.take(account, now_s=now_s, count=max(1, models)), "The nodes of your account join")

    def wait_for_specs(self, node_id: NodeId, account: AccountId, *, models: int, now_s: float) -> float:
        """Seconds until new specs may be written into the table; 0 for now."""
        wait_s = self._specs.take(node_id, now_s=now_s)
        return wait_s or self._models.take(account, now_s=now_s, count=max(1, models))


def _refuse_for(wait_s: float, who_joins: str) -> None:
    if wait_s > 0.0:
        raise JoinRefused(f"{who_joins} too often. Try again in {wait_s:.0f} s.", reason="join_rate", final=False)
