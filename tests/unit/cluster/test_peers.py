"""Two processes of one gateway, here in one: what they tell each other, and what each makes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from sparewatt.api.operations.pulse import PulseEndpoints
from sparewatt.api.responses.submissions import _outcome_of
from sparewatt.cluster import questions
from sparewatt.cluster.peer_rpc import ALONE, LOOPBACK, PeerClient, ProcessSlot, answering_peers, new_slots
from sparewatt.cluster.peers import SILENT_S
from sparewatt.cluster.questions import (
    MATCH,
    READY,
    ClaimRequest,
    MatchRequest,
    PeerQuestion,
    ReadyReply,
    ReadyRequest,
    SettleRequest,
)
from sparewatt.core.errors import (
    IdempotencyConflict,
    IdempotencyMismatch,
    NotAuthenticated,
    RateLimited,
    StartupError,
    StoreUnavailable,
)
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.core.rng import seeded
from sparewatt.edge.idempotency import (
    IDEMPOTENT_ANSWERS_PER_KEY_MAX,
    CachedAnswer,
    IdempotencyCache,
    IdempotencyId,
    Repetition,
)
from sparewatt.edge.server import bind
from sparewatt.gateway.chores import chores_of
from sparewatt.gateway.membership import joined, peer_handlers, wait_until_it_may_open
from sparewatt.gateway.processes import read_assignment, write_assignment
from sparewatt.gateway.routes import endpoint_groups
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.matcher.model import NodeState
from sparewatt.inference.matcher.ranking import BALANCED
from sparewatt.link.websocket_library import has_picows
from sparewatt.protocol.api.operations import Pulse
from sparewatt.protocol.link.frames import LINK_PATH
from sparewatt.store.database import KeyTerms
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import ADMIN, OTHER, USER, ListDatabase, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job, a_table, node_id
from tests.unit.inference.scripted import RecordingSink
from tests.unit.telemetry.test_job_counter import a_record, an_attempt
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Pair:
    first: Services
    second: Services

    async def exchange(self) -> None:
        """As it is done twice a second in the background."""
        for services in (self.first, self.second):
            [work] = [chore.work for chore in chores_of(services, None) if chore.name == "peers"]
            await work()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(bind(LOOPBACK, 0, shared=True))) for _ in range(2)]
        ports = tuple(socket.getsockname()[1] for socket in held)
        slots, database = new_slots(link_ports=(1001, 1002), peer_ports=ports, rng=seeded(1)), ListDatabase()
        both = [make_services(a_table(2), slot=slot, database=database) for slot in slots]
        for services in both:
            handlers = peer_handlers(services, endpoint_groups(services))
            stack.push_async_callback(services.peer_client.close)
            await stack.enter_async_context(answering_peers(services.slot, handlers))
        yield Pair(*both)


def fail_job(services: Services, name: str, *, key: str = "key_user") -> None:
    job = a_dispatched_job(match=a_job(id=MatchId(name), model="nobody-has-it"), key_id=KeyId(key))
    services.dispatcher.dispatch(job, RecordingSink(), ranking=BALANCED)


def clock_of(services: Services) -> ManualClock:
    assert isinstance(services.clock, ManualClock)
    return services.clock


# slots


def test_an_assignment_says_the_same_at_the_other_end_of_the_pipe() -> None:
    settings = GatewaySettings(data=Path("/somewhere"), tls_cert=Path("a.pem"), secret="ab" * 32, port=443)
    slot = new_slots(link_ports=(1, 2), peer_ports=(3, 4), rng=seeded(1))[1]
    assert read_assignment(write_assignment(settings, slot)) == (settings, slot)


def test_what_is_no_assignment_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_assignment(b"")
    with pytest.raises(StartupError):
        read_assignment(b'{"settings": {"prot": 1}, "slot": {}}')


def test_a_slot_knows_the_others() -> None:
    slot = ProcessSlot(1, link_ports=(11, 12, 13), peer_ports=(21, 22, 23))
    assert (slot.count, slot.others, slot.link_port) == (3, (0, 2), 12)
    assert (ALONE.count, ALONE.others, ALONE.link_port) == (1, (), None)


# asking


async def test_who_does_not_show_the_secret_is_told_nothing(pair: Pair) -> None:
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


async def test_a_process_that_is_asked_to_stop_waits_for_nobody(pair: Pair) -> None:
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
                await until(lambda: services.links._knocking == 1)
                assert len(services.links._visits) == (1 if has_picows() else 0)  # no task once it is in
            await services.links.close()


def replace_secret(slot: ProcessSlot, secret: str) -> ProcessSlot:
    return msgspec.structs.replace(slot, secret=secret)


def test_every_question_has_an_answer() -> None:
    services = make_services()
    answered = [handler.question.name for handler in peer_handlers(services, endpoint_groups(services))]
    asked = [question.name for question in vars(questions).values() if isinstance(question, PeerQuestion)]
    assert sorted(answered) == sorted(asked)
    assert len(set(answered)) == 12


async def test_a_process_that_is_not_there_is_left_out() -> None:
    with contextlib.closing(bind(LOOPBACK, 0)) as nobody:
        client = PeerClient(ProcessSlot(0, peer_ports=(1, nobody.getsockname()[1]), secret="x"))
        assert await client.ask_all(MATCH, MatchRequest("match_1")) == []
        await client.close()


# matches


async def test_a_match_is_shown_by_either_process_to_whoever_may_see_it(pair: Pair) -> None:
    fail_job(pair.second, "match_there")
    async with running(pair.first) as client:
        for key, status in ((USER, 200), (ADMIN, 200), (OTHER, 404)):
            reply = await client.get("/v1/matches/match_there", headers=bearer(key))
            assert reply.status == status
        assert (await client.get("/v1/matches/match_nowhere", headers=bearer(ADMIN))).status == 404


async def test_the_last_matches_are_those_of_all_processes(pair: Pair) -> None:
    fail_job(pair.first, "match_1")
    clock_of(pair.second).advance(5)
    fail_job(pair.second, "match_2")
    fail_job(pair.second, "match_other", key="key_other")
    async with running(pair.first) as client:
        mine = await (await client.get("/v1/matches", headers=bearer())).json()
        assert [each["match_id"] for each in mine["data"]] == ["match_2", "match_1"]
        one = await (await client.get("/v1/matches?limit=1", headers=bearer())).json()
        assert [each["match_id"] for each in one["data"]] == ["match_2"]


async def test_why_a_node_got_no_job_is_counted_over_all_processes(pair: Pair) -> None:
    for services in (pair.first, pair.second, pair.second):
        fail_job(services, f"match_{id(services)}_{len(list(services.dispatcher.last_records(9)))}")
    async with running(pair.first) as client:
        told = await (await client.get(f"/v1/nodes/{node_id(1)}/why", headers=bearer(ADMIN))).json()
        assert (told["matches"], told["rejected"]) == (3, {"model": 3})


# keys


async def test_a_key_that_one_process_made_or_revoked_counts_at_the_other_at_once(pair: Pair) -> None:
    for name in ("older", "new"):  # such a database numbers its rows from one, as those are that both know already
        row, secret = await pair.first.key_service.create(
            AccountId("acc_user"), terms=KeyTerms(name=name), scopes=["inference"]
        )
    unix_s = pair.second.clock.unix_s()
    assert pair.second.keys.authenticate(f"Bearer {secret}", unix_s=unix_s).id == row.id
    await pair.first.key_service.revoke(row.id, account_id=None)
    with pytest.raises(NotAuthenticated):
        pair.second.keys.authenticate(f"Bearer {secret}", unix_s=unix_s)


# what they know of each other


async def test_a_node_with_a_link_to_another_process_alone_is_online(pair: Pair) -> None:
    row = pair.first.table.get(node_id(1))
    assert row is not None
    pair.first.table.disconnect(row.id, unix_s=0.0)
    assert pair.first.states.of(row) is NodeState.OFFLINE
    pair.second.links.links[row.id] = None  # type: ignore[assignment]  # that there is one is all that counts
    pair.second.links.version += 1
    await pair.exchange()
    assert pair.first.states.of(row) is NodeState.ONLINE
    await pair.exchange()  # the list is not sent again, and still known
    assert pair.first.peers.nodes() == {row.id}
    clock_of(pair.first).advance(SILENT_S)
    assert pair.first.states.of(row) is NodeState.OFFLINE


async def test_totals_are_sums_over_all_processes(pair: Pair) -> None:
    pair.second.counter._recent.append((pair.second.clock.now_s(), 300.0))
    pair.first.counter._recent.append((pair.first.clock.now_s(), 100.0))
    await pair.exchange()
    assert pair.first.live.totals().first_token_ms == 200
    assert pair.first.live.totals().jobs == 0


async def test_one_process_counts_uptime(pair: Pair) -> None:
    await pair.exchange()
    assert (pair.first.peers.counts_uptime(), pair.second.peers.counts_uptime()) == (True, False)
    clock_of(pair.second).advance(SILENT_S)
    assert pair.second.peers.counts_uptime()
    assert make_services().peers.counts_uptime()


async def test_a_pulse_counts_what_all_processes_did(pair: Pair) -> None:
    for services in (pair.first, pair.second):
        services.counter.on_finished(a_record(an_attempt(), model=MODEL))
        services.counter.count_error("no_capacity")
    alone = describe(await pulse_of(make_services(a_table(2))))
    pulses = [describe(await pulse_of(services)) for services in (pair.first, pair.second)]
    assert [each["requests"] for each in pulses] == [2, 2]
    assert [each["errors"] for each in pulses] == [{"no_capacity": 2}] * 2
    assert pulses[0]["tokens"] == pulses[1]["tokens"] == {node_id(1): 102, node_id(2): 0}
    assert pulses[0]["instance"] == pulses[1]["instance"] != alone["instance"]
    assert len(pulses[0]["buckets"]) == len(alone["buckets"])


async def pulse_of(services: Services) -> Pulse:
    [endpoints] = [group for group in endpoint_groups(services) if isinstance(group, PulseEndpoints)]
    return await endpoints.current_pulse()


def describe(pulse: Pulse) -> dict[str, Any]:
    (model,) = pulse.models
    return {
        "instance": pulse.instance,
        "errors": pulse.errors,
        "requests": model.requests["done"],
        "buckets": model.first_token_counts,
        "tokens": {node.id: node.tokens for node in pulse.busiest},
    }


async def test_viewers_see_the_matches_of_the_other_process(pair: Pair) -> None:
    fail_job(pair.second, "match_before")
    pair.first.live.enter()
    await pair.exchange()
    fail_job(pair.second, "match_after")
    await pair.exchange()
    await pair.first.live.make_frame()
    shown = b"".join(frame.data for frame in pair.first.live.frames.after(1) or ())
    assert b"match_before" in shown
    assert b"match_after" in shown
    assert pair.second.live._peer_cursors != {}
    pair.first.live.leave()
    await pair.exchange()
    assert pair.second.live._peer_cursors == {}


# requests that are sent again


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
    found = await services.idempotency.once(repetition, produce or whole, outcome=_outcome_of)
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


async def test_a_repetition_waits_for_an_answer_that_is_under_way_elsewhere(pair: Pair) -> None:
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


async def test_what_was_streamed_is_not_run_again_elsewhere(pair: Pair) -> None:
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


async def test_a_claim_that_was_taken_back_before_it_came_holds_nothing(pair: Pair) -> None:
    """Two messages of one process may overtake each other."""
    owner, which = pair.second, name_owned_by(pair.second)
    asked = ClaimRequest(pair.first.slot.number, "claim_1", *which, b"same")
    settled = await owner.shared_idempotency.settle(SettleRequest("claim_1", *which, answer=None, keep=False))
    assert not settled.yes
    assert (await owner.shared_idempotency.claim(asked)).state == "conflict"
    assert body_of(await send(owner, which)) == b"answer"


async def test_a_claim_that_was_taken_back_while_it_waited_holds_nothing(pair: Pair) -> None:
    owner, which = pair.second, name_owned_by(pair.second)
    first, second = (ClaimRequest(pair.first.slot.number, token, *which, b"same") for token in ("claim_1", "claim_2"))
    assert (await owner.shared_idempotency.claim(first)).state == "new"
    waiting = asyncio.create_task(owner.shared_idempotency.claim(second))
    await asyncio.sleep(0)
    for asked in (second, first):
        await owner.shared_idempotency.settle(SettleRequest(asked.token, *which, answer=None, keep=False))
    assert (await waiting).state == "conflict"
    assert body_of(await send(owner, which)) == b"answer"


async def test_the_claims_of_a_process_that_died_are_let_go(pair: Pair) -> None:
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


async def test_the_claims_of_a_process_that_died_are_let_go_also_while_this_one_waits_to_open(pair: Pair) -> None:
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
