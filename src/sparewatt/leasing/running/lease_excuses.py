"""Whether a node that breaks off its answers for a lease may: the chain has to say that it just got that lease.

A node's word alone would let it drop any job for free. A lease excuses its own node only, and only while it is being
started: afterwards the node has no answers to break off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparewatt.core.clock import Clock
from sparewatt.core.ids import NodeId
from sparewatt.market.chain_records import LeaseState, MarketState

SLACK_S = 15.0
"""Between the chain's clock and ours."""


@dataclass(frozen=True, slots=True)
class LeaseExcuses:
    state: Callable[[], MarketState | None]
    """At the newest block."""
    clock: Clock

    def covers(self, node_id: NodeId, order_id: str) -> bool:
        state = self.state()
        lease = state.leases.get(order_id) if state is not None else None
        if state is None or lease is None or lease.provider is None:
            return False
        provider = state.providers.get(lease.provider)
        if provider is None or provider.node_key != node_id:
            return False
        is_starting = lease.state in (LeaseState.PENDING, LeaseState.ACTIVE) and not lease.resumed
        return is_starting and self.clock.unix_s() <= lease.confirm_by + SLACK_S
