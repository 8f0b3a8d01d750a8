"""Reputation: failures never help, old ones decay, the bound stays below the score, and causes are the node's own."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import KeyId, MatchId
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, MatchRecord, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.telemetry.job_counter import result_of
from sparewatt.trust.reputation import AttemptResult, DayCount, lower_bound, reputation_of, weight_of
from tests.unit.inference.nodes import a_job, a_table, node_id, situation

TODAY = dt.date(2026, 6, 30)
FAILURES = [result for result in AttemptResult if result is not AttemptResult.DONE]
amounts = st.floats(0.0, 1e6)
days = st.builds(
    DayCount,
    day=st.integers(0, 90).map(lambda ago: TODAY - dt.timedelta(days=ago)),
    result=st.sampled_from(AttemptResult),
    count=st.integers(1, 10_000),
    last_unix_s=st.floats(0.0, 2e9),
)


@given(amounts, amounts, st.floats(1e-3, 1e4))
def test_a_failure_never_helps_and_a_success_never_harms(done: float, failed: float, more: float) -> None:
    assert lower_bound(done, failed + more) <= lower_bound(done, failed) + 1e-12
    assert lower_bound(done + more, failed) >= lower_bound(done, failed) - 1e-12


@given(st.lists(days, max_size=30), st.sampled_from(FAILURES))
def test_bounds_hold_and_one_more_failure_costs(counts: list[DayCount], cause: AttemptResult) -> None:
    before = reputation_of(counts, today=TODAY)
    after = reputation_of([*counts, DayCount(TODAY, cause, 1, 0.0)], today=TODAY)
    assert 0.0 <= before.lower <= before.score <= 1.0
    assert after.score < before.score
    assert after.lower <= before.lower
    assert after.failures == before.failures + 1 == sum(each.count for each in after.causes)
    assert after.jobs == sum(each.count for each in counts) + 1


def test_a_node_with_few_jobs_has_a_low_bound() -> None:
    def lower(done: int) -> float:
        return reputation_of([DayCount(TODAY, AttemptResult.DONE, done, 0.0)], today=TODAY).lower

    assert reputation_of([], today=TODAY).score == 0.5
    assert lower(1) < lower(10) < lower(100) < lower(10_000) < 1.0
    assert lower(100) == pytest.approx(0.957, abs=0.001)


def test_old_failures_count_half_each_week() -> None:
    done = DayCount(TODAY, AttemptResult.DONE, 100, 0.0)

    def score(ago: int) -> float:
        failed = DayCount(TODAY - dt.timedelta(days=ago), AttemptResult.LINK_LOST, 50, 0.0)
        return reputation_of([done, failed], today=TODAY).score

    assert weight_of(TODAY - dt.timedelta(days=7), today=TODAY) == 0.5
    assert weight_of(TODAY + dt.timedelta(days=1), today=TODAY) == 1.0
    assert score(0) < score(7) < score(30) < score(90)
    assert score(90) == pytest.approx(101 / 102, abs=0.001)


def test_causes_are_summed_the_most_frequent_first() -> None:
    yesterday = TODAY - dt.timedelta(days=1)
    found = reputation_of(
        [
            DayCount(yesterday, AttemptResult.TIMED_OUT, 2, 50.0),
            DayCount(TODAY, AttemptResult.LINK_LOST, 1, 90.0),
            DayCount(yesterday, AttemptResult.LINK_LOST, 2, 40.0),
        ],
        today=TODAY,
    )
    told = [(each.result, each.count, each.last_unix_s) for each in found.causes]
    assert told == [(AttemptResult.LINK_LOST, 3, 90.0), (AttemptResult.TIMED_OUT, 2, 50.0)]


@pytest.mark.parametrize(
    ("outcome", "reason", "error_status", "result"),
    [
        (Outcome.DONE, None, None, AttemptResult.DONE),
        (Outcome.DONE, "a stop text was complete", None, AttemptResult.DONE),
        (Outcome.DONE, "status 400", 400, None),
        (Outcome.CANCELLED, None, None, None),
        (Outcome.REFUSED, "refused: full", None, None),
        (Outcome.TIMED_OUT, "no first token in time", None, AttemptResult.TIMED_OUT),
        (Outcome.TIMED_OUT, "the job took longer than 600 s", 504, None),
        (Outcome.FAILED, "link_lost: the node has just left", None, AttemptResult.LINK_LOST),
        (Outcome.FAILED, "backend_unreachable: gone", None, AttemptResult.BACKEND_UNREACHABLE),
        (Outcome.FAILED, "backend_broke: half an answer", None, AttemptResult.BACKEND_BROKE),
        (Outcome.FAILED, "backend_timeout: slow", None, AttemptResult.BACKEND_TIMEOUT),
        (Outcome.FAILED, "status 500: out of memory", None, AttemptResult.BACKEND_ERROR),
        (Outcome.FAILED, "status 500: bad schema", 400, None),
        (Outcome.FAILED, "protocol: what is this", None, AttemptResult.PROTOCOL),
        (Outcome.FAILED, "done: says the node", None, AttemptResult.PROTOCOL),
    ],
)
def test_what_an_attempt_shows_about_its_node(
    outcome: Outcome, reason: str | None, error_status: int | None, result: AttemptResult | None
) -> None:
    decision = match(a_job(), a_table(1), situation(), ranking=BALANCED, seed=1)
    record = MatchRecord(MatchId("match_a"), KeyId("key_a"), 0.0, decision, outcome, error_status=error_status)
    attempt = AttemptRecord(node_id(1), started_ms=0.0, outcome=outcome, reason=reason)
    assert result_of(attempt, record) is result


def test_an_answer_of_which_too_much_was_claimed_is_none_that_was_done() -> None:
    decision = match(a_job(), a_table(1), situation(), ranking=BALANCED, seed=1)
    record = MatchRecord(MatchId("match_a"), KeyId("key_a"), 0.0, decision, Outcome.DONE)
    attempt = AttemptRecord(node_id(1), started_ms=0.0, outcome=Outcome.DONE, delivered=DeliveryCount(is_marked=True))
    assert result_of(attempt, record) is AttemptResult.OVERCLAIMED
    attempt.delivered = DeliveryCount()
    assert result_of(attempt, record) is AttemptResult.DONE
