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

from sparewatt.core.errors import (
    IdempotencyConflict,
    IdempotencyMismatch,
    NotAuthenticated,
    StartupError,
    StoreUnavailable,
)
from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.core.rng import seeded
from sparewatt.gateway.addresses import bind
from sparewatt.gateway.feeds.pulse import describe_pulse
from sparewatt.gateway.kept_answers import Kept, Which, once
from sparewatt.gateway.openai.serving import made_of
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.answering import ANSWERS, answering
from sparewatt.gateway.siblings.asking import LOOPBACK, Asker
from sparewatt.gateway.siblings.place import ALONE, Place, new_places, read_sheet, write_sheet
from sparewatt.gateway.siblings.questions import (
    MATCH,
    READY,
    ClaimAsked,
    MatchAsked,
    ReadyAsked,
    ReadyTold,
    SettleAsked,
)
from sparewatt.gateway.siblings.siblings import SILENT_S
from sparewatt.gateway.siblings.taking_part import share, taking_part, until_it_may_open
from sparewatt.inference.dispatch.model import Job
from sparewatt.inference.matcher.model import NodeState
from sparewatt.inference.matcher.policies import BALANCED
from sparewatt.link.library import has_picows
from sparewatt.protocol.link import LINK_PATH
from sparewatt.store.database import KeyTerms
from sparewatt.testing.clock import ManualClock
from tests.unit.gateway.metrics.test_job_meter import a_record, an_attempt
from tests.unit.gateway.small_gateway import ADMIN, OTHER, USER, ListDatabase, bearer, make_services, running
from tests.unit.inference.nodes import MODEL, a_job, a_table, node_id
from tests.unit.inference.scripted import RecordingSink
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Pair:
    first: Services
    second: Services

    async def exchange(self, *, watching: bool = False) -> None:
        for services in (self.first, self.second):
            await services.siblings.exchange(watching=watching)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        held = [stack.enter_context(contextlib.closing(bind(LOOPBACK, 0, shared=True))) for _ in range(2)]
        ports = tuple(socket.getsockname()[1] for socket in held)
        places = new_places(link_ports=(1001, 1002), sibling_ports=ports, rng=seeded(1))
        both = [make_services(a_table(2), place=place) for place in places]
        for services in both:
            await stack.enter_async_context(answering(services))
        yield Pair(*both)


def fail_job(services: Services, name: str, *, key: str = "key_user") -> None:
    job = Job(
        match=a_job(id=MatchId(name), model="nobody-has-it"),
        key_id=KeyId(key),
        body=b"",
        stream=False,
        wants_usage=False,
    )
    services.dispatcher.dispatch(job, RecordingSink(), policy=BALANCED)


def clock_of(services: Services) -> ManualClock:
    assert isinstance(services.clock, ManualClock)
    return services.clock


# places


def test_a_sheet_says_the_same_at_the_other_end_of_the_pipe() -> None:
    settings = GatewaySettings(data=Path("/somewhere"), tls_cert=Path("a.pem"), secret="ab" * 32, port=443)
    place = new_places(link_ports=(1, 2), sibling_ports=(3, 4), rng=seeded(1))[1]
    assert read_sheet(write_sheet(settings, place)) == (settings, place)


def test_what_is_no_sheet_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_sheet(b"")
    with pytest.raises(StartupError):
        read_sheet(b'{"settings": {"prot": 1}, "place": {}}')


def test_a_place_knows_the_others() -> None:
    place = Place(1, link_ports=(11, 12, 13), sibling_ports=(21, 22, 23))
    assert (place.count, place.others, place.link_port) == (3, (0, 2), 12)
    assert (ALONE.count, ALONE.others, ALONE.link_port) == (1, (), None)


# asking


async def test_who_does_not_show_the_secret_is_told_nothing(pair: Pair) -> None:
    place = pair.first.place
    stranger = Asker(replace_secret(place, "00"))
    assert await stranger.ask(1, READY, ReadyAsked(may_open=False)) is None
    assert await pair.first.siblings.asker.ask(1, READY, ReadyAsked(may_open=False)) is not None
    await stranger.close()
    url = f"http://{LOOPBACK}:{place.sibling_ports[1]}"
    headers = {"authorization": f"Bearer {place.secret}"}
    async with aiohttp.ClientSession() as session:
        for path, body, shown, status in (
            ("ready", b"{}", {}, 401),
            ("nonsense", b"{}", headers, 404),
            ("match", b"no json", headers, 400),
        ):
            async with session.post(f"{url}/{path}", data=body, headers=shown) as reply:
                assert reply.status == status


async def test_a_process_opens_when_its_parent_lets_it_and_its_nodes_are_there(pair: Pair) -> None:
    parent, stop = pair.first.siblings.asker, asyncio.Event()
    opening = asyncio.create_task(until_it_may_open(pair.second, stop))
    assert await parent.ask(1, READY, ReadyAsked(may_open=False)) == ReadyTold(is_in=True, is_open=False)
    assert not opening.done()
    pair.first.desk.links[node_id(1)] = pair.second.desk.links.get(node_id(1))  # type: ignore[assignment]
    pair.first.desk.version += 1
    await parent.ask(1, READY, ReadyAsked(may_open=True))
    await until(lambda: pair.second.siblings.nodes() == {node_id(1)})
    assert not opening.done()
    pair.second.desk.links |= pair.first.desk.links
    await asyncio.wait_for(opening, 20)


async def test_a_process_that_is_asked_to_stop_waits_for_nobody(pair: Pair) -> None:
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(until_it_may_open(pair.second, stop), 20)
    assert not pair.second.siblings.may_open.is_set()


async def test_at_a_link_port_there_is_the_way_in_for_nodes_and_nothing_else() -> None:
    with contextlib.ExitStack() as held:
        link_port, own_port = (
            held.enter_context(contextlib.closing(bind(LOOPBACK, 0, shared=True))).getsockname()[1] for _ in range(2)
        )
        services = make_services(a_table(1), place=Place(0, (link_port,), (own_port,), secret="s"))
        url = f"http://{LOOPBACK}:{link_port}"
        async with taking_part(services, tls=None), aiohttp.ClientSession() as session:
            for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/healthz")):
                async with session.request(method, url + path, headers=bearer(USER), data=b"{}") as reply:
                    assert reply.status == 404
            async with session.ws_connect(url + LINK_PATH):
                await until(lambda: services.desk._knocking == 1)
                assert len(services.desk._visits) == (1 if has_picows() else 0)  # no task once it is in
            await services.desk.close()


def replace_secret(place: Place, secret: str) -> Place:
    return msgspec.structs.replace(place, secret=secret)


def test_every_question_has_an_answer() -> None:
    assert all(name == answer.question.name for name, answer in ANSWERS.items())
    assert len(ANSWERS) == 12


async def test_a_process_that_is_not_there_is_left_out() -> None:
    with contextlib.closing(bind(LOOPBACK, 0)) as nobody:
        asker = Asker(Place(0, sibling_ports=(1, nobody.getsockname()[1]), secret="x"))
        assert await asker.ask_all(MATCH, MatchAsked("match_1")) == []
        await asker.close()


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
    share(pair.first)
    assert isinstance(pair.first.database, ListDatabase)
    pair.second.database = pair.first.database
    pair.second.keys._database = pair.first.database
    for name in ("older", "new"):  # such a database numbers its rows from one, as those are that both know already
        row, secret = await pair.first.keys.create(
            AccountId("acc_user"), terms=KeyTerms(name=name), scopes=["inference"]
        )
    unix_s = pair.second.clock.unix_s()
    assert pair.second.ring.authenticate(f"Bearer {secret}", unix_s=unix_s).id == row.id
    await pair.first.keys.revoke(row.id, account_id=None)
    with pytest.raises(NotAuthenticated):
        pair.second.ring.authenticate(f"Bearer {secret}", unix_s=unix_s)


# what they know of each other


async def test_a_node_with_a_link_to_another_process_alone_is_online(pair: Pair) -> None:
    row = pair.first.table.get(node_id(1))
    assert row is not None
    pair.first.table.disconnect(row.id, unix_s=0.0)
    assert pair.first.state_of(row) is NodeState.OFFLINE
    pair.second.desk.links[row.id] = None  # type: ignore[assignment]  # that there is one is all that counts
    pair.second.desk.version += 1
    await pair.exchange()
    assert pair.first.state_of(row) is NodeState.ONLINE
    await pair.exchange()  # the list is not sent again, and still known
    assert pair.first.siblings.nodes() == {row.id}
    clock_of(pair.first).advance(SILENT_S)
    assert pair.first.state_of(row) is NodeState.OFFLINE


async def test_totals_are_sums_over_all_processes(pair: Pair) -> None:
    pair.second.history.tally._recent.append((pair.second.clock.now_s(), 300.0))
    pair.first.history.tally._recent.append((pair.first.clock.now_s(), 100.0))
    await pair.exchange()
    assert pair.first.live.totals()["first_token_ms"] == 200
    assert pair.first.live.totals()["jobs"] == 0


async def test_one_process_keeps_the_time(pair: Pair) -> None:
    await pair.exchange()
    assert (pair.first.siblings.keeps_time, pair.second.siblings.keeps_time) == (True, False)
    clock_of(pair.second).advance(SILENT_S)
    assert pair.second.siblings.keeps_time
    assert make_services().siblings.keeps_time


async def test_a_pulse_counts_what_all_processes_did(pair: Pair) -> None:
    for services in (pair.first, pair.second):
        services.count([a_record(an_attempt(), model=MODEL)])
        services.history.tally.note_error("no_capacity")
    alone = describe(await describe_pulse(make_services(a_table(2))))
    pulses = [describe(await describe_pulse(services)) for services in (pair.first, pair.second)]
    assert [each["requests"] for each in pulses] == [2, 2]
    assert [each["errors"] for each in pulses] == [{"no_capacity": 2}] * 2
    assert pulses[0]["tokens"] == pulses[1]["tokens"] == {node_id(1): 102, node_id(2): 0}
    assert pulses[0]["instance"] == pulses[1]["instance"] != alone["instance"]
    assert len(pulses[0]["buckets"]) == len(alone["buckets"])


def describe(pulse: dict[str, Any]) -> dict[str, Any]:
    (model,) = pulse["models"]
    return {
        "instance": pulse["instance"],
        "errors": pulse["errors"],
        "requests": model["requests"]["done"],
        "buckets": model["first_token_counts"],
        "tokens": {node["id"]: node["tokens"] for node in pulse["busiest"]},
    }


async def test_viewers_see_the_matches_of_the_other_process(pair: Pair) -> None:
    fail_job(pair.second, "match_before")
    pair.first.live.enter()
    await pair.exchange(watching=True)
    fail_job(pair.second, "match_after")
    await pair.exchange(watching=True)
    await pair.first.live.look()
    shown = b"".join(frame.data for frame in pair.first.live.frames.after(1) or ())
    assert b"match_before" in shown
    assert b"match_after" in shown
    await pair.exchange()
    assert pair.second.live._passing == {}


# requests that are sent again


def name_kept_by(services: Services) -> Which:
    """One that another process than `services` keeps, or itself."""
    number = services.place.number
    return next(
        ("key_user", f"n{n}") for n in range(99) if services.shared_answers._home(("key_user", f"n{n}")) == number
    )


Produce = Callable[[], Awaitable[web.StreamResponse]]


async def send(
    services: Services, which: Which, produce: Produce | None = None, digest: bytes = b"d"
) -> web.StreamResponse:
    async def whole() -> web.StreamResponse:
        return web.Response(body=b"answer")

    found = await once(
        services.answers,
        which,
        digest,
        produce or whole,
        made=made_of,
        on_repeat=lambda: None,
        now_s=services.clock.now_s,
    )
    return web.Response(body=found.body, headers=found.again()) if isinstance(found, Kept) else found


def body_of(reply: web.StreamResponse) -> object:
    assert isinstance(reply, web.Response)
    return reply.body


@pytest.mark.parametrize("keeper", [0, 1])
async def test_a_repetition_gets_the_answer_wherever_it_lands(pair: Pair, keeper: int) -> None:
    both = (pair.first, pair.second)
    which = name_kept_by(both[keeper])
    first = await send(pair.first, which)
    await until(lambda: all(entry.over.is_set() for entry in both[keeper].answers._entries.values()))
    again = [await send(services, which) for services in both]
    assert "idempotency-replayed" not in first.headers
    assert [(body_of(reply), reply.headers["idempotency-replayed"]) for reply in again] == [(b"answer", "true")] * 2
    for services in both:
        with pytest.raises(IdempotencyMismatch):
            await send(services, which, digest=b"other")


async def test_a_repetition_waits_for_an_answer_that_is_under_way_elsewhere(pair: Pair) -> None:
    which, ready = name_kept_by(pair.second), asyncio.Event()

    async def slow() -> web.StreamResponse:
        await ready.wait()
        return web.Response(body=b"slow")

    first = asyncio.create_task(send(pair.first, which, slow))
    await until(lambda: len(pair.second.answers) == 1)
    second = asyncio.create_task(send(pair.second, which))
    ready.set()
    await first
    assert body_of(await second) == b"slow"


async def test_what_was_streamed_is_not_run_again_elsewhere(pair: Pair) -> None:
    which = name_kept_by(pair.second)

    async def stream() -> web.StreamResponse:
        return web.StreamResponse()

    await send(pair.first, which, stream)
    with pytest.raises(IdempotencyConflict):
        await send(pair.second, which)


async def test_a_request_that_failed_may_be_sent_again(pair: Pair) -> None:
    which = name_kept_by(pair.second)

    async def fail() -> web.StreamResponse:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await send(pair.first, which, fail)
    assert body_of(await send(pair.second, which)) == b"answer"


async def test_a_claim_that_was_taken_back_before_it_came_holds_nothing(pair: Pair) -> None:
    """Two messages of one process may overtake each other."""
    keeper, which = pair.second, name_kept_by(pair.second)
    asked = ClaimAsked(pair.first.place.number, "claim_1", *which, b"same")
    assert not keeper.shared_answers.settle(SettleAsked("claim_1", *which, answer=None, keep=False))
    assert (await keeper.shared_answers.claim(asked)).state == "conflict"
    assert body_of(await send(keeper, which)) == b"answer"


async def test_a_claim_that_was_taken_back_while_it_waited_holds_nothing(pair: Pair) -> None:
    keeper, which = pair.second, name_kept_by(pair.second)
    first, second = (ClaimAsked(pair.first.place.number, token, *which, b"same") for token in ("claim_1", "claim_2"))
    assert (await keeper.shared_answers.claim(first)).state == "new"
    waiting = asyncio.create_task(keeper.shared_answers.claim(second))
    await asyncio.sleep(0)
    for asked in (second, first):
        keeper.shared_answers.settle(SettleAsked(asked.token, *which, answer=None, keep=False))
    assert (await waiting).state == "conflict"
    assert body_of(await send(keeper, which)) == b"answer"


async def test_the_claims_of_a_process_that_died_are_let_go(pair: Pair) -> None:
    which = name_kept_by(pair.second)
    await pair.exchange()

    async def never() -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    waiting = asyncio.create_task(send(pair.first, which, never))
    await until(lambda: len(pair.second.answers) == 1)
    again = asyncio.create_task(send(pair.second, which))
    pair.first.siblings.run = "another"
    await pair.exchange()
    assert body_of(await again) == b"answer"
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_without_its_keeper_nothing_is_run(pair: Pair) -> None:
    alone = make_services(place=replace_ports(pair.first.place))
    which = name_kept_by(pair.second)
    with pytest.raises(StoreUnavailable):
        await send(alone, which, None)
    await alone.siblings.asker.close()


def replace_ports(place: Place) -> Place:
    """As if the other process were down: nobody listens there."""
    return msgspec.structs.replace(place, sibling_ports=(place.sibling_ports[0], 1))
