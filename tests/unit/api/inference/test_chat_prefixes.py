"""Prefix caches: the next message of a conversation goes to the node that has the earlier ones cached, per account."""

from __future__ import annotations

import msgspec

from sparewatt.core.ids import NodeId
from sparewatt.gateway.services import Services
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import OTHER, USER, Client, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, make_timed, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, ScriptedNode

MESSAGE = {"role": "user", "content": "all work and no play " * 500}
NODES = 5


class Network:
    def __init__(self, *, prefix_cache_tokens: int) -> None:
        self.services: Services = make_services()
        clock, table = self.services.clock, self.services.table
        assert isinstance(clock, ManualClock)
        specs = some_specs(a_model(prefix_cache_tokens=prefix_cache_tokens))
        self.nodes = []
        for number in range(1, NODES + 1):
            table.connect(node_id(number), specs, now_s=NOW_S)
            make_timed(table, node_id(number))
            node = ScriptedNode(number, clock, table)
            node.answer_when_asked(COMPLETION)
            self.services.links.links[node.id] = node.link
            self.nodes.append(node)

    def cached_tokens(self) -> list[int]:
        """The cached tokens that the gateway expected of nodes, over all jobs."""
        return sorted(opened.cached_tokens for node in self.nodes for opened in node.opened)

    def blocks_remembered(self) -> int:
        return len(self.services.dispatcher._context.prefixes)


async def answering_node(client: Client, *messages: object, key: str = USER) -> str:
    """Send a chat; returns the id of the node that answered."""
    body = msgspec.json.encode({"model": MODEL, "messages": messages})
    async with client.post("/v1/chat/completions", headers=bearer(key), data=body) as reply:
        assert reply.status == 200, await reply.text()
        return reply.headers["x-sparewatt-node"]


async def test_the_next_message_goes_to_the_node_that_has_the_last_cached() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        first = await answering_node(client, MESSAGE)
        assert {await answering_node(client, MESSAGE, {"role": "user", "content": str(n)}) for n in range(NODES)} == {
            first
        }
    assert network.cached_tokens()[1:] == [2560] * NODES


async def test_prefixes_of_other_accounts_are_not_matched() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        await answering_node(client, MESSAGE)
        await answering_node(client, MESSAGE, key=OTHER)
    assert network.cached_tokens() == [0, 0]


async def test_without_a_prefix_cache_nothing_is_hashed() -> None:
    network = Network(prefix_cache_tokens=0)
    async with running(network.services) as client:
        await answering_node(client, MESSAGE)
        await answering_node(client, MESSAGE)
    assert network.cached_tokens() == [0, 0]
    assert network.blocks_remembered() == 0


async def test_a_node_that_leaves_has_no_cached_prefixes() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        read_by = await answering_node(client, MESSAGE)
    assert network.blocks_remembered() > 0
    network.services.links._on_left(NodeId(read_by))
    assert network.blocks_remembered() == 0
