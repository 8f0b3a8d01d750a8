"""What a streaming client reads when nothing comes, when it comes late, and when its node is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import ClientResponse

from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.buffered_sink import KEEP_ALIVE
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import Client, bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import BODY, DONE, FINISH, ROLE, ScriptedNode, text_event
from tests.waiting import until

CHAT = "/v1/chat/completions"
STREAM = BODY[:-1] + b',"stream":true}'
ABLE = some_specs(a_model(capabilities=("chat", "continue_raw")))


@asynccontextmanager
async def a_gateway(
    nodes: int = 1, *, timeouts: ClientTimeouts | None = None
) -> AsyncIterator[tuple[Client, list[ScriptedNode], Services]]:
    services = make_services()
    assert isinstance(services.clock, ManualClock)
    found = []
    for number in range(1, nodes + 1):
        services.table.connect(node_id(number), ABLE, now_s=NOW_S)
        node = ScriptedNode(number, services.clock, services.table)
        services.links.links[node.id] = node.link
        found.append(node)
    async with running(services, timeouts=timeouts) as client:
        yield client, found, services


def post(client: Client, body: bytes = STREAM) -> asyncio.Task[ClientResponse]:
    reply: Awaitable[ClientResponse] = client.post(CHAT, headers=bearer(), data=body)

    async def awaited() -> ClientResponse:
        return await reply

    return asyncio.ensure_future(awaited())


IMPATIENT = ClientTimeouts(keep_alive_s=0.02, check_s=0.005)
"""A silence is over before a test is."""


async def test_a_silent_stream_gets_comments_and_no_node_credit_for_them() -> None:
    async with a_gateway(timeouts=IMPATIENT) as (client, [node], _):
        asking = post(client)
        await until(lambda: node.body)
        node.begin(ROLE, text_event("Hi"))
        reply = await asking
        said = await reply.content.readexactly(len(ROLE + text_event("Hi") + KEEP_ALIVE + KEEP_ALIVE))
        assert said == ROLE + text_event("Hi") + KEEP_ALIVE + KEEP_ALIVE
        await until(lambda: node.credit_bytes == node.sent_bytes)
        node.data(FINISH, DONE)
        node.end()
        rest = await reply.read()
        assert rest.replace(KEEP_ALIVE, b"") == FINISH + DONE


async def test_a_stream_that_begins_late_has_its_head_early() -> None:
    async with a_gateway(timeouts=IMPATIENT) as (client, [node], _):
        asking = post(client)
        reply = await asking
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/event-stream"
        assert reply.headers["x-sparewatt-match-id"].startswith("match_")
        assert await reply.content.readexactly(len(KEEP_ALIVE)) == KEEP_ALIVE
        node.answer(ROLE, text_event("Hi"), FINISH, DONE)
        assert (await reply.read()).replace(KEEP_ALIVE, b"") == ROLE + text_event("Hi") + FINISH + DONE


async def test_what_goes_wrong_after_an_early_head_is_the_last_event() -> None:
    async with a_gateway(timeouts=IMPATIENT) as (client, [node], services):
        reply = await post(client)
        assert reply.status == 200
        node.lost()
        said = (await reply.read()).replace(KEEP_ALIVE, b"")
        assert set(msgspec.json.decode(said.removeprefix(b"data: "))) == {"error"}
        assert b"[DONE]" not in said
        assert services.dispatcher.running == 0


async def test_a_failure_before_that_is_an_error_reply() -> None:
    async with a_gateway() as (client, [node], _):
        asking = post(client)
        await until(lambda: node.body)
        node.lost()
        reply = await asking
        assert reply.status == 502
        assert "error" in await reply.json()


async def test_a_client_that_leaves_in_the_silence_stops_the_node() -> None:
    async with a_gateway(timeouts=IMPATIENT) as (client, [node], services):
        reply = await post(client)
        reply.close()
        await until(lambda: node.cancelled)
        await until(lambda: services.dispatcher.running == 0)


async def break_in_the_middle(client: Client, nodes: list[ScriptedNode], body: bytes) -> bytes:
    asking = post(client, body)
    await until(lambda: any(node.body for node in nodes))
    [first] = [node for node in nodes if node.body]
    first.begin(ROLE, text_event("Hel"))
    reply = await asking
    await reply.content.readexactly(len(ROLE + text_event("Hel")))
    first.lost()
    for second in nodes:
        if second is not first and second.body:
            second.answer(ROLE, text_event("lo"), FINISH, DONE)
    return await reply.read()


async def test_a_lost_node_is_not_noticed() -> None:
    async with a_gateway(2) as (client, nodes, _):
        rest = await break_in_the_middle(client, nodes, STREAM)
        assert rest == text_event("lo") + FINISH + DONE


async def test_a_request_may_forbid_continuation_on_another_node() -> None:
    body = BODY[:-1] + b',"stream":true,"provider":{"allow_resume":false}}'
    async with a_gateway(2) as (client, nodes, _):
        rest = await break_in_the_middle(client, nodes, body)
        assert set(msgspec.json.decode(rest.removeprefix(b"data: "))) == {"error"}


async def test_the_explanation_shows_where_the_seam_is() -> None:
    async with a_gateway(2) as (client, nodes, services):
        await break_in_the_middle(client, nodes, STREAM)
        [record] = services.dispatcher.last_records(1)
        found = await (await client.get(f"/v1/matches/{record.id}", headers=bearer())).json()
        first, second = found["attempts"]
        assert (first["tokens"], first["chars"], first["continued_from"]) == (1, 3, None)
        assert (second["tokens"], second["continued_from"]) == (1, {"tokens": 1, "chars": 3})
        [move] = found["moves"]
        assert (move["attempt"], move["after_tokens"], move["chosen"]) == (1, 1, second["node"])
        assert [each["node"] for each in move["candidates"]] == [second["node"]]
        assert move["candidates"][0]["cost_s"] == pytest.approx(sum(move["candidates"][0]["parts"].values()), abs=1e-4)
