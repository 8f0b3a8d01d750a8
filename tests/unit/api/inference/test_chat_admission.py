"""Chats when all nodes are busy: which requests wait, their queue headers and errors, and priorities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse

from sparewatt.core.ids import KeyId
from sparewatt.gateway.process import _drain
from sparewatt.gateway.services import Services
from sparewatt.inference.admission.model import WAITING_PER_ACCOUNT_MAX, WAITING_S_MAX
from sparewatt.inference.matcher.capacity import NODE_AHEAD_PER_SLOT
from sparewatt.inference.matcher.reservation import Reservation
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import OTHER, USER, Client, bearer, make_services, running
from tests.unit.inference.nodes import NOW_S, a_job, a_model, node_id, some_specs
from tests.unit.inference.scripted import BODY, COMPLETION, DONE, FINISH, USAGE, ScriptedNode, text_event
from tests.waiting import until

CHAT = "/v1/chat/completions"
PLACES = 1 + NODE_AHEAD_PER_SLOT


class FullGateway:
    """A gateway with one node of one slot, which has all the jobs that it may have."""

    def __init__(self) -> None:
        self.services: Services = make_services()
        clock = self.services.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        table = self.services.table
        table.connect(node_id(1), some_specs(slots=1), now_s=NOW_S)
        self.node = ScriptedNode(1, clock, table)
        self.services.links.links[self.node.id] = self.node.link
        self._taken: list[Reservation] = [table.reserve(self.node.id, a_job(), now_s=NOW_S) for _ in range(PLACES)]

    def make_room(self) -> None:
        self.services.table.release(self._taken.pop(), now_s=self.clock.now_s())
        self.clock.advance(0)

    @property
    def waiting(self) -> int:
        return self.services.admission.waiting


@asynccontextmanager
async def full_gateway() -> AsyncIterator[tuple[FullGateway, Client]]:
    full = FullGateway()
    async with running(full.services) as client:
        yield full, client


def post(client: Client, *, key: str = USER, body: bytes = BODY, **headers: str) -> asyncio.Task[ClientResponse]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    reply: Awaitable[ClientResponse] = client.post(CHAT, headers=bearer(key) | named, data=body)
    return asyncio.ensure_future(_awaited(reply))


async def _awaited(reply: Awaitable[ClientResponse]) -> ClientResponse:
    return await reply


async def error_of(reply: ClientResponse) -> dict[str, Any]:
    error: dict[str, Any] = (await reply.json())["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    return error


async def test_a_job_without_a_free_slot_waits_and_is_answered_when_there_is_one() -> None:
    async with full_gateway() as (full, client):
        pending = post(client)
        await until(lambda: full.waiting)
        assert full.services.dispatcher.running == 0
        full.clock.advance(2.5)
        full.node.answer_when_asked(COMPLETION)
        full.make_room()
        reply = await pending
        assert await reply.read() == COMPLETION
    assert reply.headers["x-sparewatt-queued-ms"] == "2500"
    assert reply.headers["x-sparewatt-queue-position"] == "1"
    assert reply.headers["x-sparewatt-node"] == full.node.id


async def test_a_stream_that_waited_has_the_queue_header_too() -> None:
    async with full_gateway() as (full, client):
        pending = post(client, body=BODY[:-1] + b',"stream":true}')
        await until(lambda: full.waiting)
        full.node.answer_when_asked(text_event("Hi"), DONE)
        full.make_room()
        reply = await pending
        assert await reply.read() == text_event("Hi") + DONE
    assert "x-sparewatt-queued-ms" in reply.headers


async def test_a_job_that_did_not_wait_has_no_queue_header() -> None:
    async with full_gateway() as (full, client):
        full.make_room()
        full.node.answer_when_asked(COMPLETION)
        reply = await post(client)
    assert reply.status == 200
    assert not [name for name in reply.headers if "queue" in name.lower()]


async def test_a_job_that_waited_too_long_is_503_with_its_position() -> None:
    async with full_gateway() as (full, client):
        pending = post(client)
        await until(lambda: full.waiting)
        full.clock.advance(WAITING_S_MAX)
        reply = await pending
        error = await error_of(reply)
    assert (reply.status, error["code"], error["queue_position"]) == (503, "no_capacity", 1)
    assert reply.headers["x-sparewatt-queue-position"] == "1"
    assert int(reply.headers["retry-after"]) >= 1


async def test_more_than_an_accounts_share_is_429_and_another_account_still_waits() -> None:
    async with full_gateway() as (full, client):
        pending = [post(client) for _ in range(WAITING_PER_ACCOUNT_MAX)]
        await until(lambda: full.waiting == WAITING_PER_ACCOUNT_MAX)
        reply = await post(client)
        error = await error_of(reply)
        pending.append(post(client, key=OTHER))
        await until(lambda: full.waiting == WAITING_PER_ACCOUNT_MAX + 1)
        full.services.admission.close()
        await asyncio.gather(*pending)
    assert (reply.status, error["type"], error["code"]) == (429, "rate_limit_error", "queue_full")
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.headers["x-sparewatt-queue-position"] == str(WAITING_PER_ACCOUNT_MAX + 1)


async def test_a_client_that_leaves_the_queue_frees_its_place_at_once() -> None:
    async with full_gateway() as (full, client):
        pending = post(client)
        await until(lambda: full.waiting)
        pending.cancel()
        await until(lambda: not full.waiting)
        full.make_room()
        assert full.services.dispatcher.running == 0


async def test_a_stopping_gateway_refuses_waiting_requests() -> None:
    async with full_gateway() as (full, client):
        pending = post(client)
        await until(lambda: full.waiting)
        await _drain(full.services)
        reply = await pending
        error = await error_of(reply)
    assert (reply.status, error["code"]) == (503, "shutting_down")
    assert "retry-after" in reply.headers


async def test_a_request_that_no_node_could_ever_take_does_not_wait() -> None:
    long = BODY.replace(b"Hi", b"word " * 40_000)  # more than 8,192 tokens however one counts
    async with full_gateway() as (full, client):
        reply = await post(client, body=long)
        error = await error_of(reply)
    assert (reply.status, error["code"]) == (400, "context_length_exceeded")
    assert full.waiting == 0


async def test_a_request_waits_for_a_node_that_is_being_measured() -> None:
    services = make_services()
    services.table.connect(node_id(1), some_specs(a_model(measured=None)), now_s=NOW_S)
    assert isinstance(services.clock, ManualClock)
    node = ScriptedNode(1, services.clock, services.table)
    services.links.links[node.id] = node.link
    async with running(services) as client:
        pending = post(client)
        await until(lambda: services.admission.waiting)
        node.answer_when_asked(COMPLETION)
        services.table.set_specs(node.id, some_specs())
        services.clock.advance(0)
        assert (await pending).status == 200


async def test_a_request_does_not_wait_for_an_offline_node() -> None:
    services = make_services()
    services.table.remember(node_id(1), some_specs(), last_seen_unix_s=5.0)
    async with running(services) as client:
        reply = await post(client)
        error = await error_of(reply)
    assert (reply.status, error["code"]) == (503, "no_capacity")


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
async def test_a_priority_is_taken_from_the_header(priority: str) -> None:
    async with full_gateway() as (full, client):
        full.make_room()
        full.node.answer_when_asked(COMPLETION)
        assert (await post(client, x_sparewatt_priority=priority)).status == 200


async def test_an_unknown_priority_is_400_and_names_the_header() -> None:
    async with full_gateway() as (_, client):
        reply = await post(client, x_sparewatt_priority="urgent")
        error = await error_of(reply)
    assert (reply.status, error["code"], error["param"]) == (400, "invalid_value", "x-sparewatt-priority")


async def test_high_priority_is_served_before_earlier_requests() -> None:
    async with full_gateway() as (full, client):
        first = post(client)
        await until(lambda: full.waiting == 1)
        urgent = post(client, key=OTHER, x_sparewatt_priority="high")
        await until(lambda: full.waiting == 2)
        full.node.answer_when_asked(COMPLETION)
        full.make_room()
        assert (await urgent).status == 200
        full.clock.advance(0)
        assert (await first).status == 200  # in the slot that the urgent request released


async def test_the_rate_limit_is_corrected_to_the_tokens_used() -> None:
    async with full_gateway() as (full, client):
        full.make_room()
        full.node.answer_when_asked(COMPLETION)
        reply = await post(client)
    limit, left = (int(reply.headers[f"x-ratelimit-{what}-tokens"]) for what in ("limit", "remaining"))
    assert limit - left == 5 + 2  # as the node counted prompt and answer


async def test_the_rate_limit_counts_what_a_stream_sent_also_if_the_client_left() -> None:
    async with full_gateway() as (full, client):
        full.make_room()
        full.node.answer_when_asked(text_event("Hi"), text_event(" you"), FINISH, USAGE, DONE)
        whole = await post(client, body=BODY[:-1] + b',"stream":true}')
        await whole.read()
        meter = full.services.limits.key_meter(KeyId("key_user"), now_s=full.clock.now_s())
        await until(lambda: meter.tokens_per_min - meter.tokens_left == 5 + 2)
        leaving = post(client, body=BODY[:-1] + b',"stream":true}')
        await until(lambda: len(full.node.opened) == 2)
        full.node.begin(text_event("Hi"))
        (await leaving).close()
        await until(lambda: not full.services.dispatcher.running)
        await until(lambda: 5 + 2 < meter.tokens_per_min - meter.tokens_left < 40)


async def test_a_request_that_no_node_could_serve_uses_no_tokens() -> None:
    async with full_gateway() as (_, client):
        reply = await post(client, body=BODY.replace(b"llama-3-8b", b"nobody-has-this"))
    assert reply.status == 404
    assert reply.headers["x-ratelimit-remaining-tokens"] == reply.headers["x-ratelimit-limit-tokens"]
