"""A node that runs in a lease is one while the lease goes on, by the chain and not by anybody's word."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.leasing.running.leased_nodes import LeasedNodes
from sparewatt.protocol.contracts.chain_events import ChainEvent
from tests.unit.leasing.running.placed import CLOSED, CONFIRMED, ORDER, PAUSED, VACATED, state

NODE, OTHER = NodeId("0x" + "1" * 40), NodeId("0x" + "2" * 40)
UNKNOWN = "0x" + "9" * 64


class MemoryStore:
    def __init__(self) -> None:
        self.forgotten: list[NodeId] = []

    async def nodes_of_leases(self) -> list[tuple[NodeId, str]]:
        return [(NODE, ORDER), (OTHER, UNKNOWN)]

    async def forget_nodes(self, node_ids: Sequence[NodeId]) -> None:
        self.forgotten += node_ids


async def test_a_node_whose_lease_was_closed_leaves_and_others_stay() -> None:
    store = MemoryStore()
    nodes = LeasedNodes(lambda: state(CONFIRMED, CLOSED), store)
    assert nodes.is_over(ORDER)
    assert not nodes.is_over(UNKNOWN), "an order that this gateway has not heard of is not over"
    assert await nodes.take_ended() == store.forgotten == [NODE]


@pytest.mark.parametrize("events", [(), (CONFIRMED,), (CONFIRMED, PAUSED), (VACATED,)])
async def test_a_lease_that_goes_on_pauses_or_waits_for_a_stand_in_keeps_its_node(
    events: tuple[ChainEvent, ...],
) -> None:
    store = MemoryStore()
    assert await LeasedNodes(lambda: state(*events), store).take_ended() == store.forgotten == []


async def test_while_the_chain_cannot_be_read_nothing_is_over() -> None:
    store = MemoryStore()
    assert await LeasedNodes(lambda: None, store).take_ended() == store.forgotten == []
