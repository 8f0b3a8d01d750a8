"""Nodes that run in leases: whether a node's lease is over, by the chain. Then it may not join, and leaves the network.

A machine's owner has what runs on it, so also the key of a node in a lease: without this it could go on as the renter's
node after the lease. While the chain cannot be read, nothing is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.ids import NodeId
from sparewatt.market.chain_records import MarketState, OrderState

_OVER = (OrderState.CLOSED, OrderState.EXPIRED)


class LeasedNodeStore(Protocol):
    async def nodes_of_leases(self) -> list[tuple[NodeId, str]]: ...

    async def forget_nodes(self, node_ids: Sequence[NodeId]) -> None: ...


@dataclass(frozen=True, slots=True)
class LeasedNodes:
    state: Callable[[], MarketState | None]
    """Of the market; None while it cannot be read."""
    store: LeasedNodeStore

    def is_over(self, order_id: str) -> bool:
        state = self.state()
        order = state.orders.get(order_id) if state is not None else None
        return order is not None and order.state in _OVER

    async def take_ended(self) -> list[NodeId]:
        """Those whose leases are over, and that somebody may still know. They are forgotten in the database."""
        ended = [node for node, order_id in await self.store.nodes_of_leases() if self.is_over(order_id)]
        if ended:
            await self.store.forget_nodes(ended)
        return ended
