"""Calls between the processes of one gateway: slots, the shared secret, and processes that do not answer."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import msgspec

from sparewatt.cluster import questions
from sparewatt.cluster.peer_rpc import ALONE, LOOPBACK, PeerClient, ProcessSlot
from sparewatt.cluster.questions import (
    MATCH,
    READY,
    MatchRequest,
    PeerQuestion,
    ReadyReply,
    ReadyRequest,
)
from sparewatt.edge.server import bind
from sparewatt.gateway.membership import joined, peer_handlers, wait_until_it_may_open
from sparewatt.gateway.routes import endpoint_groups
from sparewatt.link.websocket_library import has_picows
from sparewatt.protocol.link.frames import LINK_PATH
from tests.unit.cluster.pair import Pair
from tests.unit.gateway.small_gateway import USER, bearer, make_services
from tests.unit.inference.nodes import a_table, node_id
from tests.waiting import until


def test_a_slot_knows_the_others() -> None:
    slot = ProcessSlot(1, link_ports=(11, 12, 13), peer_ports=(21, 22, 23))
    assert (slot.count, slot.others, slot.link_port) == (3, (0, 2), 12)
    assert (ALONE.count, ALONE.others, ALONE.link_port) == (1, (), None)


async def test_a_caller_without_the_secret_gets_no_answer(pair: Pair) -> None:
    slot = pair.first.slot
    stranger = PeerClient(replace_secret(slot, "00"))
    assert await stranger.ask(1, READY, ReadyRequest(may_open=False)) is None
    assert await pair.first.peer_client.ask(1, READY, ReadyRequest(may_open=False)) is not None
    await stranger.close()
    url = f"http://{LOOPBACK}:{slot.peer_ports[1]}"
    headers = {"authorization": f"Bearer {slot.secret}"}
    async with aiohttp.ClientSession() as session:
        for path, body, shown, status in (
            ("ready", b"{}", {}, 401),
            ("nonsense", b"{}", headers, 404),
            ("match", b"no json", headers, 400),
        ):
            async with session.post(f"{url}/{path}", data=body, headers=shown) as reply:
                assert reply.status == status


async def test_a_process_opens_when_its_parent_lets_it_and_its_nodes_are_there(pair: Pair) -> None:
    parent, stop = pair.first.peer_client, asyncio.Event()
    opening = asyncio.create_task(wait_until_it_may_open(pair.second, stop))
    assert await parent.ask(1, READY, ReadyRequest(may_open=False)) == ReadyReply(is_in=True, is_open=False)
    assert not opening.done()
    pair.first.links.links[node_id(1)] = pair.second.links.links.get(node_id(1))  # type: ignore[assignment]
    pair.first.links.version += 1
    await parent.ask(1, READY, ReadyRequest(may_open=True))
    await until(lambda: pair.second.peers.nodes() == {node_id(1)})
    assert not opening.done()
    pair.second.links.links |= pair.first.links.links
    await asyncio.wait_for(opening, 20)


async def test_a_process_that_must_stop_does_not_wait_to_open(pair: Pair) -> None:
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(wait_until_it_may_open(pair.second, stop), 20)
    assert not pair.second.peers.may_open.is_set()


async def test_at_a_link_port_there_is_the_way_in_for_nodes_and_nothing_else() -> None:
    with contextlib.ExitStack() as held:
        link_port, own_port = (
            held.enter_context(contextlib.closing(bind(LOOPBACK, 0, shared=True))).getsockname()[1] for _ in range(2)
        )
        services = make_services(a_table(1), slot=ProcessSlot(0, (link_port,), (own_port,), secret="s"))
        url = f"http://{LOOPBACK}:{link_port}"
        async with joined(services, [], tls=None), aiohttp.ClientSession() as session:
            for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/healthz")):
                async with session.request(method, url + path, headers=bearer(USER), data=b"{}") as reply:
                    assert reply.status == 404
            async with session.ws_connect(url + LINK_PATH):
                await until(lambda: len(services.links.admission.places) == 1)
                assert len(services.links._visits) == (1 if has_picows() else 0)  # no task once it is in
            await services.links.close()


def replace_secret(slot: ProcessSlot, secret: str) -> ProcessSlot:
    return msgspec.structs.replace(slot, secret=secret)


def test_every_question_has_an_answer() -> None:
    services = make_services()
    answered = [handler.question.name for handler in peer_handlers(services, endpoint_groups(services))]
    asked = [question.name for question in vars(questions).values() if isinstance(question, PeerQuestion)]
    assert sorted(answered) == sorted(asked)
    assert len(set(answered)) == 13


async def test_a_process_that_is_not_there_is_left_out() -> None:
    with contextlib.closing(bind(LOOPBACK, 0)) as nobody:
        client = PeerClient(ProcessSlot(0, peer_ports=(1, nobody.getsockname()[1]), secret="x"))
        assert await client.ask_all(MATCH, MatchRequest("match_1")) == []
        await client.close()
