"""What one finished job adds to the figures, and that strangers' names cannot make them grow without end."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from msgspec.structs import replace

from sparewatt.core.ids import KeyId, MatchId, ModelId
from sparewatt.core.limits import METRICS_MODELS_MAX
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, MatchRecord, Outcome
from sparewatt.inference.matcher.model import Decision, MatchJob
from sparewatt.telemetry.job_counter import CHANGES_KEPT, OTHER, JobCounter, JobTotals, MatchChanges
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import node_id


def an_attempt(at: int = 1, **changes: Any) -> AttemptRecord:
    attempt = AttemptRecord(node_id(at), 0.0, Outcome.DONE, first_token_ms=200.0, ended_ms=1200.0, tokens=51)
    attempt.delivered = DeliveryCount(chunks=51, prompt_tokens=12, completion_tokens=51)
    return replace(attempt, **changes)


def a_failure(at: int = 2, outcome: Outcome = Outcome.FAILED, reason: str = "link_lost: gone") -> AttemptRecord:
    return an_attempt(at, outcome=outcome, reason=reason, first_token_ms=None, tokens=0, delivered=None)


def a_record(
    *attempts: AttemptRecord, model: str = "m", outcome: Outcome = Outcome.DONE, **changes: Any
) -> MatchRecord:
    job = MatchJob(MatchId("match_a"), ModelId(model), prompt_tokens=10, output_tokens=100)
    decision = Decision(job, "balanced", 9, rejected_counts=(2,), rejected_by_policy={"region": 3})
    record = MatchRecord(MatchId("match_a"), KeyId("key_a"), 0.0, decision, outcome, list(attempts), match_s=40e-6)
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def totals_of(*records: MatchRecord) -> JobTotals:
    counter = JobCounter(lambda _: True, clock=ManualClock())
    for record in records:
        counter.on_finished(record)
    return counter.totals


def test_a_streamed_answer_is_counted_in_full() -> None:
    totals = totals_of(a_record(an_attempt()))
    found = totals.models["m"]
    assert found.ends == {"done": 1, "failed": 0, "rejected": 0, "cancelled": 0}
    assert (found.prompt_tokens, found.completion_tokens) == (12, 51)
    assert found.first_token.total == pytest.approx(0.2)
    assert found.per_token.total == pytest.approx(0.02)
    assert found.duration.total == pytest.approx(1.2)
    assert totals.match.total == pytest.approx(40e-6)
    assert totals.candidates.total == 4
    assert (totals.node_tokens, dict(totals.cascades), totals.seams) == ({node_id(1): 51}, {}, 0)


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    found = totals_of(a_record(an_attempt(), streamed=False)).models["m"]
    assert (sum(found.duration.counts), sum(found.first_token.counts), sum(found.per_token.counts)) == (1, 0, 0)


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (a_record(an_attempt(), outcome=Outcome.CANCELLED), "cancelled"),
        (a_record(a_failure(), outcome=Outcome.FAILED, error_status=502), "failed"),
        (a_record(a_failure(), outcome=Outcome.FAILED, error_status=400), "rejected"),
        (a_record(outcome=Outcome.FAILED, error_status=503, error_code="no_capacity"), "failed"),
    ],
)
def test_how_a_job_ended_says_whose_fault_it_was(record: MatchRecord, end: str) -> None:
    found = totals_of(record).models["m"]
    assert {name for name, count in found.ends.items() if count} == {end}
    assert sum(found.duration.counts) == 0


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (a_failure(), "link_lost"),
        (a_failure(reason="whatever a node may say"), "protocol"),
        (a_failure(reason="status 500: its own words"), "backend_error"),
        (a_failure(outcome=Outcome.TIMED_OUT, reason="no first token"), "timed_out"),
        (a_failure(outcome=Outcome.TIMED_OUT, reason="the job took longer than 1800 s"), "other"),
        (a_failure(outcome=Outcome.REFUSED, reason="full"), "refused"),
    ],
)
def test_why_an_attempt_was_not_the_last_is_one_of_a_few_words(attempt: AttemptRecord, reason: str) -> None:
    totals = totals_of(a_record(attempt, an_attempt()))
    assert totals.cascades == {reason: 1}
    assert totals.models["m"].ends["done"] == 1


def test_an_answer_that_moved_is_one_answer_with_one_prompt() -> None:
    first = an_attempt(1, outcome=Outcome.FAILED, reason="link_lost: gone", tokens=20)
    second = an_attempt(2, first_token_ms=1500.0, ended_ms=5200.0, tokens=31, carried_tokens=20)
    totals = totals_of(a_record(first, second))
    found = totals.models["m"]
    assert (totals.seams, found.prompt_tokens, found.completion_tokens) == (1, 12, 51)
    assert found.first_token.total == pytest.approx(0.2)
    assert found.per_token.total == pytest.approx(0.1)


def test_a_model_that_nobody_serves_has_no_line_of_its_own() -> None:
    counter = JobCounter(lambda model: model == "served", clock=ManualClock())
    for model in ("served", "made up", "also made up"):
        counter.on_finished(a_record(model=model, outcome=Outcome.FAILED))
    assert set(counter.totals.models) == {"served", OTHER}
    assert counter.totals.models[OTHER].ends["failed"] == 2


def test_only_so_many_models_have_a_line() -> None:
    totals = totals_of(*(a_record(an_attempt(), model=f"m{at}") for at in range(3 * METRICS_MODELS_MAX)))
    assert len(totals.models) == METRICS_MODELS_MAX + 1
    assert sum(found.ends["done"] for found in totals.models.values()) == 3 * METRICS_MODELS_MAX


def test_models_that_are_gone_make_room_and_nothing_is_lost() -> None:
    served = {f"m{at}" for at in range(METRICS_MODELS_MAX)}
    counter = JobCounter(lambda model: model in served, clock=ManualClock())
    for model in sorted(served):
        counter.on_finished(a_record(an_attempt(), model=model))
    served &= {"m1"}
    counter.totals.tidy()
    assert set(counter.totals.models) == {"m1", OTHER}
    assert counter.totals.models[OTHER].completion_tokens == 51 * (METRICS_MODELS_MAX - 1)
    served.add("new")
    counter.on_finished(a_record(an_attempt(), model="new"))
    assert "new" in counter.totals.models


def jobs_counted(counter: JobCounter) -> int:
    return sum(sum(totals.ends.values()) for totals in counter.totals.models.values())


def changes_of(count: int) -> tuple[MatchChanges, list[MatchId]]:
    changes = MatchChanges()
    ids = [MatchId(f"match_{number}") for number in range(count)]
    for match_id in ids:
        changes.add(match_id)
    return changes, ids


# match changes: readers and their cursors


def test_a_reader_gets_what_came_after_its_cursor_and_the_oldest_first() -> None:
    changes, ids = changes_of(5)
    assert changes.since(0) == (ids, 0)
    assert changes.since(3) == (ids[3:], 0)


def test_a_reader_that_is_up_to_date_gets_nothing() -> None:
    changes, _ = changes_of(5)
    assert changes.since(changes.cursor) == ([], 0)
    assert MatchChanges().since(0) == ([], 0)


def test_what_one_reader_took_is_there_for_another() -> None:
    changes, ids = changes_of(2)
    first = changes.cursor
    changes.add(ids[0])
    assert changes.since(first) == ([ids[0]], 0)
    assert changes.since(0) == ([*ids, ids[0]], 0)


def test_a_reader_that_was_away_for_too_long_learns_how_many_it_missed() -> None:
    changes, ids = changes_of(CHANGES_KEPT + 5)
    assert changes.since(0) == (ids[5:], 5)
    assert changes.since(3) == (ids[5:], 2)
    assert changes.since(5) == (ids[5:], 0)


def test_a_match_that_is_over_is_not_kept_alive() -> None:
    counter, record = JobCounter(lambda _: True, clock=ManualClock()), a_record(an_attempt())
    before = sys.getrefcount(record)
    counter.on_started(record)
    counter.on_finished(record)
    assert sys.getrefcount(record) == before


# what is counted


def test_a_job_is_a_change_when_it_begins_and_when_it_ends_and_counts_once() -> None:
    counter = JobCounter(lambda _: True, clock=ManualClock())
    record = a_record(an_attempt())
    counter.on_started(record)
    assert (counter.changes.cursor, jobs_counted(counter), counter.interval.take(["network"])) == (1, 0, {})
    counter.on_finished(record)
    assert (counter.changes.cursor, jobs_counted(counter)) == (2, 1)
    assert counter.interval.take(["network"])["network", ""].jobs == 1
