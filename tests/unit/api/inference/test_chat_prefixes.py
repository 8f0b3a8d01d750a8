"""Conversations through the chat route: the next turn goes where the last one was read, each account by itself."""

from __future__ import annotations

import msgspec

from sparewatt.core.ids import NodeId
from sparewatt.gateway.services import Services
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import OTHER, USER, Client, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import COMPLETION, ScriptedNode

TURN = {"role": "user", "content": "all work and no play " * 500}
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
            node = ScriptedNode(number, clock, table)
            node.answer_when_asked(COMPLETION)
            self.services.links.links[node.id] = node.link
            self.nodes.append(node)

    def cached_tokens(self) -> list[int]:
        """What nodes were told that they hold, over all jobs."""
        return sorted(opened.cached_tokens for node in self.nodes for opened in node.opened)

    def blocks_remembered(self) -> int:
        return len(self.services.dispatcher._context.prefixes)


async def ask(client: Client, *turns: object, key: str = USER) -> str:
    """The node that answered."""
    body = msgspec.json.encode({"model": MODEL, "messages": turns})
    async with client.post("/v1/chat/completions", headers=bearer(key), data=body) as reply:
        assert reply.status == 200, await reply.text()
        return reply.headers["x-sparewatt-node"]


async def test_the_next_turn_goes_to_the_node_that_read_the_last() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        first = await ask(client, TURN)
        assert {await ask(client, TURN, {"role": "user", "content": str(n)}) for n in range(NODES)} == {first}
    assert network.cached_tokens()[1:] == [2560] * NODES


async def test_nobody_learns_what_another_account_has_asked() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        await ask(client, TURN)
        await ask(client, TURN, key=OTHER)
    assert network.cached_tokens() == [0, 0]


async def test_where_no_node_keeps_prompts_nothing_is_hashed() -> None:
    network = Network(prefix_cache_tokens=0)
    async with running(network.services) as client:
        await ask(client, TURN)
        await ask(client, TURN)
    assert network.cached_tokens() == [0, 0]
    assert network.blocks_remembered() == 0


async def test_a_node_that_leaves_is_not_thought_to_hold_anything() -> None:
    network = Network(prefix_cache_tokens=100_000)
    async with running(network.services) as client:
        read_by = await ask(client, TURN)
    assert network.blocks_remembered() > 0
    network.services.links._on_left(NodeId(read_by))
    assert network.blocks_remembered() == 0
