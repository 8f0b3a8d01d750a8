"""The live feed: a snapshot, what changed, and where a viewer goes on that was away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

from sparewatt.api.network.feed import FEED_VIEWERS_PER_ADDRESS_MAX
from sparewatt.cluster.questions import SharedMatch
from sparewatt.core.ids import KeyId, MatchId
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.protocol.api.feed import FeedDelta
from sparewatt.telemetry.feed.live_feed import (
    FEED_FRAMES_KEPT,
    FEED_MATCHES_KEPT,
    FEED_MATCHES_PER_FRAME,
    QUIET_FRAME_S,
    FrameRing,
)
from sparewatt.telemetry.job_counter import CHANGES_KEPT
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import Client, make_services, running
from tests.unit.inference.nodes import a_dispatched_job, a_job, a_table, node_id, some_specs
from tests.unit.inference.scripted import RecordingSink
from tests.unit.telemetry.test_job_counter import a_record, an_attempt
from tests.waiting import until

Event = tuple[str, str, dict[str, Any]]


async def next_event(reply: aiohttp.ClientResponse) -> Event:
    """Its kind, its id and what it says."""
    said: dict[str, str] = {}
    async with asyncio.timeout(20):
        while True:
            line = (await reply.content.readline()).decode().rstrip("\n")
            if not line and "data" in said:
                return said["event"], said["id"], json.loads(said["data"])
            name, _, value = line.partition(": ")
            said[name] = value


def clock_of(services: Services) -> ManualClock:
    assert isinstance(services.clock, ManualClock)
    return services.clock


def fail_job(services: Services, name: str) -> None:
    match = a_job(id=MatchId(name), model="nobody-has-it")
    job = a_dispatched_job(match=match, key_id=KeyId("key_user"))
    services.dispatcher.dispatch(job, RecordingSink(), ranking=BALANCED)


async def watched(client: Client, last_id: str = "") -> aiohttp.ClientResponse:
    reply = await client.get("/v1/feed", headers={"last-event-id": last_id} if last_id else {})
    assert reply.status == 200
    return reply


async def test_a_viewer_sees_all_nodes_and_then_only_what_changed() -> None:
    services = make_services(a_table(3))
    async with running(services) as client:
        reply = await watched(client)
        kind, _, snapshot = await next_event(reply)
        assert (kind, len(snapshot["nodes"])) == ("snapshot", 3)
        online, offline = snapshot["states"].index("online"), snapshot["states"].index("offline")
        assert {cells[-1] for cells in snapshot["nodes"]} == {online}
        services.table.disconnect(node_id(2), unix_s=services.clock.unix_s())
        await services.live.make_frame()
        kind, _, delta = await next_event(reply)
        assert kind == "delta"
        number = snapshot["nodes"][1][0]
        assert delta["nodes"] == [number, offline]
        assert "added" not in delta
        assert delta["totals"]["nodes"] == {"online": 2, "offline": 1}
        reply.close()


async def test_a_node_that_joins_or_changes_is_sent_in_full() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        reply = await watched(client)
        await next_event(reply)
        services.table.connect(node_id(9), some_specs(region="JP"), now_s=services.clock.now_s())
        await services.live.make_frame()
        _, _, delta = await next_event(reply)
        assert [cells[2] for cells in delta["added"]] == ["JP"]
        reply.close()


async def test_a_viewer_that_reconnects_gets_the_missed_frames_and_none_twice() -> None:
    services = make_services(a_table(2))
    async with running(services) as client:
        stays, leaves = await watched(client), await watched(client)
        await next_event(stays)
        _, last_id, _ = await next_event(leaves)
        leaves.close()
        for number in (1, 2):
            services.table.disconnect(node_id(number), unix_s=services.clock.unix_s())
            await services.live.make_frame()
        back = await watched(client, last_id)
        first, second = await next_event(back), await next_event(back)
        assert [first[0], second[0]] == ["delta", "delta"]
        assert [len(event[2]["nodes"]) for event in (first, second)] == [2, 2]
        back.close()
        stays.close()


async def test_a_viewer_that_was_away_while_there_were_no_others_gets_a_snapshot() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        reply = await watched(client)
        _, last_id, _ = await next_event(reply)
        reply.close()
        await until(lambda: services.live.viewers == 0)
        services.table.disconnect(node_id(1), unix_s=services.clock.unix_s())
        await services.live.make_frame()
        back = await watched(client, last_id)
        kind, _, snapshot = await next_event(back)
        assert kind == "snapshot"
        assert snapshot["totals"]["nodes"] == {"offline": 1}
        back.close()


async def test_an_id_of_another_gateway_is_not_taken_for_ours() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        reply = await watched(client, "feed_other-1")
        assert (await next_event(reply))[0] == "snapshot"
        reply.close()


def test_a_viewer_cannot_continue_from_a_frame_that_left_the_ring() -> None:
    frames = FrameRing("run")
    change = FeedDelta(at=0.0, totals=make_services().live.totals())
    for _ in range(FEED_FRAMES_KEPT + 5):
        frames.add(change)
    assert frames.after(3) is None
    assert [frame.number for frame in frames.after(frames.number - 2) or []] == [frames.number - 1, frames.number]
    assert frames.after(frames.number) == []
    assert frames.after(frames.number + 1) is None
    assert frames.number_of("run-12") == 12
    assert [frames.number_of(said) for said in ("", "run-", "run-x", "ran-12", "run-" + "9" * 30)] == [None] * 5


async def test_matches_are_shown_without_their_account_and_no_more_than_fit() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        reply = await watched(client)
        await next_event(reply)
        for number in range(FEED_MATCHES_PER_FRAME + 3):
            fail_job(services, f"match_{number}")
        await services.live.make_frame()
        _, _, delta = await next_event(reply)
        assert len(delta["matches"]) == FEED_MATCHES_PER_FRAME
        assert delta["more_matches"] == 3
        assert delta["matches"][0]["outcome"] == "failed"
        assert "key_user" not in json.dumps(delta)
        reply.close()


async def test_where_nothing_happens_little_is_sent() -> None:
    services = make_services(a_table(1))
    services.live.enter()
    for _ in range(3):
        await services.live.make_frame()
    before = services.live.frames.number
    await services.live.make_frame()
    assert services.live.frames.number == before
    clock_of(services).advance(QUIET_FRAME_S)
    await services.live.make_frame()
    assert services.live.frames.number == before + 1


async def test_one_address_may_not_take_all_seats() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        replies = [await watched(client) for _ in range(FEED_VIEWERS_PER_ADDRESS_MAX)]
        refused = await client.get("/v1/feed")
        assert refused.status == 503
        assert "retry-after" in refused.headers
        for reply in replies:
            reply.close()
        await until(lambda: services.live.viewers == 0)


async def test_a_gateway_that_stops_sends_its_viewers_home() -> None:
    services = make_services(a_table(1))
    async with running(services) as client:
        reply = await watched(client)
        await next_event(reply)
        services.drain.is_draining = True
        services.live.close()
        async with asyncio.timeout(20):
            assert await reply.content.read() == b""


# frames and shared matches, without a socket


def fail_jobs(services: Services, count: int, *, name: str = "match") -> None:
    for number in range(count):
        fail_job(services, f"{name}_{number}")


def last_delta(services: Services) -> dict[str, Any]:
    """As it is sent to viewers."""
    frames = services.live.frames
    last = frames.after(frames.number - 1)
    assert last is not None
    delta: dict[str, Any] = json.loads(last[-1].data.partition(b"data: ")[2])
    return delta


def ids_of(matches: list[SharedMatch]) -> list[str]:
    return [match.public.id for match in matches]


def test_every_count_includes_every_job_that_is_over() -> None:
    services = make_services()
    for count in (1, 2, 3):
        fail_jobs(services, 1, name=f"match_{count}")
        assert sum(sum(totals.ends.values()) for totals in services.counter.totals.models.values()) == count
        assert services.counter.interval.network().jobs == count
        assert len(services.dispatcher.explanations) == count


async def test_a_feed_that_nobody_watches_makes_no_frames() -> None:
    services = make_services()
    fail_jobs(services, 3)
    await services.live.make_frame()
    assert services.live.frames.number == 0


async def test_a_viewer_is_sent_what_came_after_it_and_not_what_its_snapshot_shows() -> None:
    services = make_services()
    fail_jobs(services, 2, name="before")
    services.live.enter()
    assert b"before_1" in services.live.snapshot().data
    fail_jobs(services, 1, name="after")
    await services.live.make_frame()
    assert [match["id"] for match in last_delta(services)["matches"]] == ["after_0"]
    services.live.leave()
    fail_jobs(services, 1, name="unseen")
    services.live.enter()
    assert b"unseen_0" in services.live.snapshot().data
    fail_jobs(services, 1, name="later")
    await services.live.make_frame()
    assert [match["id"] for match in last_delta(services)["matches"]] == ["later_0"]


async def test_a_match_that_changed_twice_between_two_looks_is_shown_once_and_as_it_is() -> None:
    services = make_services()
    services.live.enter()
    record = a_record(an_attempt(), outcome=Outcome.RUNNING)
    services.dispatcher._ring.add(record)
    services.counter.on_started(record)
    record.outcome = Outcome.DONE
    services.counter.on_finished(record)
    await services.live.make_frame()
    delta = last_delta(services)
    assert [(match["id"], match["outcome"]) for match in delta["matches"]] == [("match_a", "done")]
    assert "more_matches" not in delta


async def test_a_frame_counts_the_matches_it_leaves_out() -> None:
    services = make_services()
    services.live.enter()
    fail_jobs(services, CHANGES_KEPT + 10)
    await services.live.make_frame()
    delta = last_delta(services)
    assert len(delta["matches"]) == FEED_MATCHES_PER_FRAME
    assert delta["more_matches"] == CHANGES_KEPT + 10 - FEED_MATCHES_PER_FRAME


def test_another_process_is_passed_the_last_matches_and_then_what_is_new() -> None:
    services = make_services()
    fail_jobs(services, FEED_MATCHES_KEPT + 1)
    assert ids_of(services.live.share(1)) == [f"match_{number}" for number in range(1, FEED_MATCHES_KEPT + 1)]
    assert services.live.share(1) == []
    fail_jobs(services, 1, name="new")
    assert ids_of(services.live.share(1)) == ["new_0"]
    assert ids_of(services.live.share(2))[-2:] == [f"match_{FEED_MATCHES_KEPT}", "new_0"]


def test_a_process_at_which_nobody_watched_is_passed_the_last_matches_again() -> None:
    services = make_services()
    fail_jobs(services, 1)
    assert ids_of(services.live.share(1)) == ["match_0"]
    services.live.stop_sharing(1)
    assert ids_of(services.live.share(1)) == ["match_0"]
