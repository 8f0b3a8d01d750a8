"""`Idempotency-Key` over two processes: claims at the owner of an id, their settlement and their release."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from aiohttp import web

from sparewatt.api.responses.submissions import outcome_of
from sparewatt.cluster.peer_rpc import ProcessSlot
from sparewatt.cluster.questions import (
    ClaimRequest,
    SettleRequest,
)
from sparewatt.core.errors import (
    IdempotencyConflict,
    IdempotencyMismatch,
    RateLimited,
    StoreUnavailable,
)
from sparewatt.edge.idempotency import (
    IDEMPOTENT_ANSWERS_PER_KEY_MAX,
    CachedAnswer,
    IdempotencyCache,
    IdempotencyId,
    Repetition,
)
from sparewatt.gateway.membership import wait_until_it_may_open
from sparewatt.gateway.services import Services
from tests.unit.cluster.pair import Pair
from tests.unit.gateway.small_gateway import make_services
from tests.unit.inference.nodes import node_id
from tests.waiting import until


def name_owned_by(services: Services, prefix: str = "n") -> IdempotencyId:
    """One that falls to the cache of this process."""
    names = (("key_user", f"{prefix}{n}") for n in range(99))
    return next(name for name in names if services.shared_idempotency._owner(name) == services.slot.number)


def cache_of(services: Services) -> IdempotencyCache:
    return services.idempotency.cache


Produce = Callable[[], Awaitable[web.StreamResponse]]


async def send(
    services: Services, which: IdempotencyId, produce: Produce | None = None, digest: bytes = b"d"
) -> web.StreamResponse:
    async def whole() -> web.StreamResponse:
        return web.Response(body=b"answer")

    repetition = Repetition(which, digest, on_repeat=lambda: None)
    found = await services.idempotency.once(repetition, produce or whole, outcome=outcome_of)
    return web.Response(body=found.body, headers=found.replay_headers()) if isinstance(found, CachedAnswer) else found


def body_of(reply: web.StreamResponse) -> object:
    assert isinstance(reply, web.Response)
    return reply.body


@pytest.mark.parametrize("owner", [0, 1])
async def test_a_repetition_gets_the_answer_wherever_it_lands(pair: Pair, owner: int) -> None:
    both = (pair.first, pair.second)
    which = name_owned_by(both[owner])
    first = await send(pair.first, which)
    await until(lambda: all(entry.over.is_set() for entry in cache_of(both[owner])._entries.values()))
    again = [await send(services, which) for services in both]
    assert "idempotency-replayed" not in first.headers
    assert [(body_of(reply), reply.headers["idempotency-replayed"]) for reply in again] == [(b"answer", "true")] * 2
    for services in both:
        with pytest.raises(IdempotencyMismatch):
            await send(services, which, digest=b"other")


async def test_a_repetition_waits_for_an_answer_that_another_process_produces(pair: Pair) -> None:
    which, ready = name_owned_by(pair.second), asyncio.Event()

    async def slow() -> web.StreamResponse:
        await ready.wait()
        return web.Response(body=b"slow")

    first = asyncio.create_task(send(pair.first, which, slow))
    await until(lambda: len(cache_of(pair.second)) == 1)
    second = asyncio.create_task(send(pair.second, which))
    ready.set()
    await first
    assert body_of(await second) == b"slow"


async def test_a_streamed_answer_is_not_produced_again_by_another_process(pair: Pair) -> None:
    which = name_owned_by(pair.second)

    async def stream() -> web.StreamResponse:
        return web.StreamResponse()

    await send(pair.first, which, stream)
    with pytest.raises(IdempotencyConflict):
        await send(pair.second, which)


async def test_a_request_that_failed_may_be_sent_again(pair: Pair) -> None:
    which = name_owned_by(pair.second)

    async def fail() -> web.StreamResponse:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await send(pair.first, which, fail)
    assert body_of(await send(pair.second, which)) == b"answer"


async def test_a_claim_withdrawn_before_it_arrived_blocks_nothing(pair: Pair) -> None:
    """Two messages of one process may overtake each other."""
    owner, which = pair.second, name_owned_by(pair.second)
    asked = ClaimRequest(pair.first.slot.number, "claim_1", *which, b"same")
    settled = await owner.shared_idempotency.settle(SettleRequest("claim_1", *which, answer=None, keep=False))
    assert not settled.yes
    assert (await owner.shared_idempotency.claim(asked)).state == "conflict"
    assert body_of(await send(owner, which)) == b"answer"


async def test_a_claim_withdrawn_while_it_waited_blocks_nothing(pair: Pair) -> None:
    owner, which = pair.second, name_owned_by(pair.second)
    first, second = (ClaimRequest(pair.first.slot.number, token, *which, b"same") for token in ("claim_1", "claim_2"))
    assert (await owner.shared_idempotency.claim(first)).state == "new"
    waiting = asyncio.create_task(owner.shared_idempotency.claim(second))
    await asyncio.sleep(0)
    for asked in (second, first):
        await owner.shared_idempotency.settle(SettleRequest(asked.token, *which, answer=None, keep=False))
    assert (await waiting).state == "conflict"
    assert body_of(await send(owner, which)) == b"answer"


async def test_the_claims_of_a_dead_process_are_released(pair: Pair) -> None:
    which = name_owned_by(pair.second)
    await pair.exchange()

    async def never() -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    waiting = asyncio.create_task(send(pair.first, which, never))
    await until(lambda: len(cache_of(pair.second)) == 1)
    again = asyncio.create_task(send(pair.second, which))
    pair.first.peers.run = "another"
    await pair.exchange()
    assert body_of(await again) == b"answer"
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_the_claims_of_a_dead_process_are_released_also_while_this_one_waits_to_open(pair: Pair) -> None:
    which, stop = name_owned_by(pair.second), asyncio.Event()

    async def never() -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    pair.first.links.links[node_id(1)] = None  # type: ignore[assignment]  # for its link it waits
    pair.second.peers.may_open.set()
    opening = asyncio.create_task(wait_until_it_may_open(pair.second, stop))
    await until(lambda: pair.second.peers.nodes() == {node_id(1)})
    waiting = asyncio.create_task(send(pair.first, which, never))
    await until(lambda: len(cache_of(pair.second)) == 1)
    pair.first.peers.run = "another"
    await until(lambda: pair.second.peers._states[0].news.run == "another")
    pair.second.links.links |= pair.first.links.links
    await asyncio.wait_for(opening, 20)
    await pair.exchange()
    assert len(cache_of(pair.second)) == 0
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_one_too_many_running_is_refused_by_its_owner_and_none_that_runs_is_forgotten(pair: Pair) -> None:
    owner, which, ready = pair.second, name_owned_by(pair.second), asyncio.Event()

    async def slow() -> web.StreamResponse:
        await ready.wait()
        return web.Response(body=b"slow")

    first = asyncio.create_task(send(pair.first, which, slow))
    await until(lambda: len(cache_of(owner)) == 1)
    for number in range(IDEMPOTENT_ANSWERS_PER_KEY_MAX - 1):
        cache_of(owner).begin(("key_user", f"running {number}"), b"d", now_s=owner.clock.now_s())
    with pytest.raises(RateLimited):
        await send(pair.first, name_owned_by(owner, "one too many "))
    again = asyncio.create_task(send(pair.first, which))
    ready.set()
    await first
    assert body_of(await again) == b"slow"
    assert body_of(await send(pair.first, name_owned_by(owner, "one too many "))) == b"answer"


async def test_without_its_owner_nothing_is_run(pair: Pair) -> None:
    alone = make_services(slot=replace_ports(pair.first.slot))
    which = name_owned_by(pair.second)
    with pytest.raises(StoreUnavailable):
        await send(alone, which, None)
    await alone.peer_client.close()


def replace_ports(slot: ProcessSlot) -> ProcessSlot:
    """As if the other process were down: nobody listens there."""
    return msgspec.structs.replace(slot, peer_ports=(slot.peer_ports[0], 1))
