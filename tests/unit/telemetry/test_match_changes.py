"""Matches that were made or ended: each reader gets every one of them once, and a job counts as soon as it is over."""

from __future__ import annotations

import json
from typing import Any

from sparewatt.cluster.questions import SharedMatch
from sparewatt.core.ids import MatchId
from sparewatt.core.limits import FEED_MATCHES_KEPT, FEED_MATCHES_PER_FRAME
from sparewatt.gateway.services import Services
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.telemetry.match_changes import CHANGES_KEPT, MatchChanges
from sparewatt.testing.clocks import ManualClock
from tests.unit.gateway.small_gateway import make_services
from tests.unit.telemetry.feed.test_live_feed import fail_job
from tests.unit.telemetry.test_job_counter import a_record, an_attempt


def fail_jobs(services: Services, count: int, *, name: str = "match") -> None:
    for number in range(count):
        fail_job(services, f"{name}_{number}")


def jobs_counted(counter: JobCounter) -> int:
    return sum(sum(totals.ends.values()) for totals in counter.totals.models.values())


def changes_of(count: int) -> tuple[MatchChanges, list[MatchRecord]]:
    changes = MatchChanges()
    records = [a_record(id=MatchId(f"match_{number}")) for number in range(count)]
    for record in records:
        changes.add(record)
    return changes, records


def last_delta(services: Services) -> dict[str, Any]:
    """As a viewer is sent it."""
    frames = services.live.frames
    found = frames.after(frames.number - 1)
    assert found is not None
    delta: dict[str, Any] = json.loads(found[-1].data.partition(b"data: ")[2])
    return delta


def ids_of(matches: list[SharedMatch]) -> list[str]:
    return [match.public.id for match in matches]


# readers and their cursors


def test_a_reader_gets_what_came_after_its_cursor_and_the_oldest_first() -> None:
    changes, records = changes_of(5)
    assert changes.since(0) == (records, 0)
    assert changes.since(3) == (records[3:], 0)


def test_a_reader_that_is_up_to_date_gets_nothing() -> None:
    changes, _ = changes_of(5)
    assert changes.since(changes.cursor) == ([], 0)
    assert MatchChanges().since(0) == ([], 0)


def test_what_one_reader_took_is_there_for_another() -> None:
    changes, records = changes_of(2)
    first = changes.cursor
    changes.add(records[0])
    assert changes.since(first) == ([records[0]], 0)
    assert changes.since(0) == ([*records, records[0]], 0)


def test_a_reader_that_was_away_for_too_long_learns_how_many_it_missed() -> None:
    changes, records = changes_of(CHANGES_KEPT + 5)
    assert changes.since(0) == (records[5:], 5)
    assert changes.since(3) == (records[5:], 2)
    assert changes.since(5) == (records[5:], 0)


def test_a_match_is_read_as_it_is_now() -> None:
    changes, [record] = changes_of(1)
    record.outcome = Outcome.CANCELLED
    [read], _ = changes.since(0)
    assert read.outcome is Outcome.CANCELLED


# what is counted


def test_a_job_is_a_change_when_it_begins_and_when_it_ends_and_counts_once() -> None:
    counter = JobCounter(lambda _: True, clock=ManualClock())
    record = a_record(an_attempt())
    counter.on_started(record)
    assert (counter.changes.cursor, jobs_counted(counter), counter.interval.take(["network"])) == (1, 0, {})
    counter.on_finished(record)
    assert (counter.changes.cursor, jobs_counted(counter)) == (2, 1)
    assert counter.interval.take(["network"])["network", ""].jobs == 1


def test_whoever_reads_a_count_sees_every_job_that_is_over() -> None:
    services = make_services()
    for count in (1, 2, 3):
        fail_jobs(services, 1, name=f"match_{count}")
        assert jobs_counted(services.counter) == count
        assert services.counter.interval.network().jobs == count
        assert len(services.dispatcher.explanations) == count


# the live feed


async def test_a_feed_that_nobody_watches_makes_no_frames() -> None:
    services = make_services()
    fail_jobs(services, 3)
    await services.live.look()
    assert services.live.frames.number == 0


async def test_a_viewer_is_sent_what_came_after_it_and_not_what_its_snapshot_shows() -> None:
    services = make_services()
    fail_jobs(services, 2, name="before")
    services.live.enter()
    assert b"before_1" in services.live.snapshot().data
    fail_jobs(services, 1, name="after")
    await services.live.look()
    assert [match["id"] for match in last_delta(services)["matches"]] == ["after_0"]
    services.live.leave()
    fail_jobs(services, 1, name="unseen")
    services.live.enter()
    assert b"unseen_0" in services.live.snapshot().data
    fail_jobs(services, 1, name="later")
    await services.live.look()
    assert [match["id"] for match in last_delta(services)["matches"]] == ["later_0"]


async def test_a_match_that_changed_twice_between_two_looks_is_shown_once_and_as_it_is() -> None:
    services = make_services()
    services.live.enter()
    record = a_record(an_attempt(), outcome=Outcome.RUNNING)
    services.counter.on_started(record)
    record.outcome = Outcome.DONE
    services.counter.on_finished(record)
    await services.live.look()
    delta = last_delta(services)
    assert [(match["id"], match["outcome"]) for match in delta["matches"]] == [("match_a", "done")]
    assert "more_matches" not in delta


async def test_a_frame_says_how_many_it_leaves_out_also_of_those_that_are_not_kept() -> None:
    services = make_services()
    services.live.enter()
    fail_jobs(services, CHANGES_KEPT + 10)
    await services.live.look()
    delta = last_delta(services)
    assert len(delta["matches"]) == FEED_MATCHES_PER_FRAME
    assert delta["more_matches"] == CHANGES_KEPT + 10 - FEED_MATCHES_PER_FRAME


def test_another_process_is_passed_the_last_matches_and_then_what_is_new() -> None:
    services = make_services()
    fail_jobs(services, FEED_MATCHES_KEPT + 1)
    assert ids_of(services.live.pass_on(1)) == [f"match_{number}" for number in range(1, FEED_MATCHES_KEPT + 1)]
    assert services.live.pass_on(1) == []
    fail_jobs(services, 1, name="new")
    assert ids_of(services.live.pass_on(1)) == ["new_0"]
    assert ids_of(services.live.pass_on(2))[-2:] == [f"match_{FEED_MATCHES_KEPT}", "new_0"]


def test_a_process_at_which_nobody_watched_is_passed_the_last_matches_again() -> None:
    services = make_services()
    fail_jobs(services, 1)
    assert ids_of(services.live.pass_on(1)) == ["match_0"]
    assert services.live.stop_passing(1) == []
    assert ids_of(services.live.pass_on(1)) == ["match_0"]
