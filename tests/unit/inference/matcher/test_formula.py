"""Each term by itself: what it is in numbers, and that a column of numbers gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher.columns import ColumnField
from sparewatt.inference.matcher.formula import OTHERS_WEIGHT, OVERLAP, PARTS, STALL_WEIGHT
from sparewatt.inference.matcher.scan import MatchQuery

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
JOB = MatchQuery(prompt_tokens=500.0, output_tokens=200.0, usd_weight=1e4)


def numbers(**changes: float) -> Numbers:
    """Of an idle node of which nothing is known, but for these fields."""
    found = np.zeros(len(ColumnField))
    found[ColumnField.READ_SLOWER] = 1.0
    for name, value in changes.items():
        found[ColumnField[name]] = value
    return found


# the queue


def queue_s(*, now_s: float = 100.0, **changes: float) -> float:
    return float(formula.queue_time(JOB._replace(now_s=now_s), numbers(**changes)))


def test_an_idle_node_has_no_queue() -> None:
    assert queue_s() == 0.0


def test_prompts_ahead_are_waited_for_until_they_should_be_read() -> None:
    assert queue_s(OWN_READ_END_S=103.0) == 3.0
    assert queue_s(OWN_READ_END_S=103.0, now_s=102.0) == 1.0
    assert queue_s(FOREIGN_READ_END_S=102.0) == 2.0


def test_prompts_of_others_are_read_behind_those_sent_from_here() -> None:
    assert queue_s(OWN_READ_END_S=103.0, FOREIGN_READ_END_S=102.0) == 5.0


def test_some_of_the_queue_passes_on_the_way() -> None:
    assert queue_s(OWN_READ_END_S=103.0, RTT_S=1.0) == 2.0
    assert queue_s(FOREIGN_READ_END_S=103.0, RTT_S=9.0) == 0.0


def test_the_way_there_counts_once_however_many_queues_there_are() -> None:
    queues = {"OWN_READ_END_S": 103.0, "FOREIGN_READ_END_S": 102.0}
    assert queue_s(**queues, RTT_S=1.0) == queue_s(**queues) - 1.0


def test_an_overdue_prompt_of_ours_is_still_in_the_way_and_an_overdue_one_of_others_is_not() -> None:
    assert queue_s(OWN_READ_END_S=60.0, OWN_READ_MIN_S=0.25) == 0.25
    assert queue_s(FOREIGN_READ_END_S=60.0) == 0.0


def test_a_slot_is_waited_for_on_top() -> None:
    assert queue_s(SLOT_WAIT_S=7.0, OWN_READ_END_S=103.0) == 10.0


# reading


def prefill_s(tokens: float = 500.0, **changes: float) -> float:
    return float(formula.prefill_time(JOB._replace(prompt_tokens=tokens), numbers(**changes)))


def test_reading_is_a_start_and_each_token() -> None:
    assert prefill_s(PREFILL_FIXED_S=0.1, PREFILL_TOKEN_S=1e-3) == pytest.approx(0.1 + 0.5)


def test_attention_grows_with_the_square_of_the_prompt() -> None:
    assert prefill_s(1000.0, PREFILL_SQUARE_S=1e-7) == pytest.approx(0.1)
    assert prefill_s(2000.0, PREFILL_SQUARE_S=1e-7) == pytest.approx(0.4)


def test_beside_answers_a_prompt_takes_longer() -> None:
    alone, beside = (
        formula.parts(JOB, numbers(PREFILL_FIXED_S=1.0, READ_SLOWER=slower))[PARTS.index("prefill")]
        for slower in (1.0, 1.25)
    )
    assert (alone, beside) == (1.0, 1.25)


def test_writing_is_a_step_per_token_with_half_of_its_own_context() -> None:
    assert formula.decode_time(JOB, 0.02, 0.0) == pytest.approx(200 * 0.02)
    assert formula.decode_time(JOB, 0.02, 1e-7) == pytest.approx(200 * (0.02 + 600 * 1e-7))


NEED = 700 * 1000.0


def test_a_context_that_fits_waits_for_nobody() -> None:
    assert formula.memory_wait(JOB, 10.0, 1000.0, NEED) == 0.0
    assert formula.memory_wait(JOB, 10.0, 0.0, 1e9) == 0.0


def test_a_context_that_does_not_fit_waits_for_a_share_of_its_own_writing() -> None:
    assert formula.memory_wait(JOB, 10.0, 1000.0, NEED / 2) == pytest.approx(0.35 * 10 * 1.5)
    assert formula.memory_wait(JOB, 10.0, 1000.0, 0.0) == pytest.approx(0.35 * 10 * 2)


def test_waiting_for_memory_is_bounded() -> None:
    assert formula.memory_wait(JOB, 1e6, 1000.0, -1e15) == formula.KV_WAIT_S_MAX


def slowing(jobs: float, *, prefill_s: float = 0.5, **changes: float) -> float:
    found = numbers(JOBS=jobs, STEP_ADDED_S=0.001, KV_TOKEN_S=100_000 / 1e12, **changes)
    return float(formula.slowdown(JOB, found, prefill_s))


def test_an_idle_node_slows_nobody_and_each_job_there_counts() -> None:
    grows_s = 200 * OVERLAP * (0.001 + 500 * 100_000 / 1e12)
    assert slowing(0.0) == 0.0
    assert slowing(1.0) == pytest.approx(OTHERS_WEIGHT * grows_s)
    assert slowing(3.0) == pytest.approx(3 * slowing(1.0))


def test_answers_lose_what_they_stall_while_the_prompt_is_read() -> None:
    stalled_s = slowing(1.0, prefill_s=0.5, STALL_SHARE=0.9) - slowing(1.0, prefill_s=0.0, STALL_SHARE=0.9)
    assert stalled_s == pytest.approx(OTHERS_WEIGHT * STALL_WEIGHT * 0.5 * 0.9)


def test_a_node_asks_by_the_token() -> None:
    assert formula.asked_usd(JOB, 0.001, 0.002) == pytest.approx(500 * 0.001 + 200 * 0.002)


def test_a_tenth_of_a_cent_is_worth_ten_seconds_when_balanced() -> None:
    assert formula.price(JOB, 0.001) == pytest.approx(10.0)
    assert formula.price(JOB._replace(usd_weight=4e4), 0.001) == pytest.approx(40.0)
    assert formula.price(JOB._replace(usd_weight=0.0), 1.0) == 0.0


def test_flakiness_is_a_second_and_half_of_everything_by_the_odds() -> None:
    assert formula.flakiness(0.0, 10.0) == 0.0
    assert formula.flakiness(0.5, 10.0) == pytest.approx(3.0)


def test_a_node_that_is_silent_or_has_just_failed_is_suspect() -> None:
    job = JOB._replace(now_s=100.0, suspect_before_s=90.0)
    assert formula.suspicion(job, 91.0, 0.0) == 0.0
    assert formula.suspicion(job, 90.0, 0.0) == formula.SUSPECT_S
    assert formula.suspicion(job, 99.0, 101.0) == formula.SUSPECT_S
    assert formula.suspicion(job, 99.0, 100.0) == 0.0


# the same lines on floats and on columns

amounts = st.floats(0.0, 1e15)
seconds = st.floats(0.0, 1e9)
tokens = st.integers(1, 1 << 24).map(float)
questions = st.builds(MatchQuery, tokens, tokens, tokens, usd_weight=st.sampled_from([0.0, 1e4, 4e4]), now_s=seconds)

TERMS: dict[Callable[..., Any], tuple[st.SearchStrategy[float], ...]] = {
    formula.flakiness: (st.floats(0.0, 1e6), seconds),
    formula.decode_time: (seconds, seconds),
    formula.memory_wait: (seconds, amounts, amounts),
    formula.asked_usd: (st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    formula.price: (st.floats(0.0, 1e6),),
    formula.suspicion: (seconds, seconds),
}
WITHOUT_JOB = (formula.flakiness,)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.__name__)
@given(data=st.data(), job=questions)
def test_a_term_gives_the_same_bits_for_a_number_and_for_a_column(
    term: Callable[..., Any], data: st.DataObject, job: MatchQuery
) -> None:
    rows = data.draw(st.lists(st.tuples(*TERMS[term]), min_size=1, max_size=5))
    first = () if term in WITHOUT_JOB else (job,)
    alone = [float(term(*first, *row)) for row in rows]
    together = term(*first, *(np.array(column) for column in zip(*rows, strict=True)))
    assert together.tolist() == alone
    assert all(np.isfinite(alone))
    assert min(alone) >= 0.0


some_numbers = st.lists(st.floats(0.0, 1e9), min_size=len(ColumnField), max_size=len(ColumnField)).map(np.array)


@given(nodes=st.lists(some_numbers, min_size=1, max_size=4), job=questions)
def test_all_parts_are_the_same_bits_for_a_node_and_for_columns(nodes: list[Numbers], job: MatchQuery) -> None:
    alone = [[float(part) for part in formula.parts(job, node)] for node in nodes]
    together = np.array(formula.parts(job, np.array(nodes).T))
    assert together.T.tolist() == alone
    assert np.isfinite(together).all()
    assert together.min() >= 0.0


def test_every_part_has_its_term_and_its_place() -> None:
    """Numbers with one thing at a time: it shows in its own part (and in what follows from it)."""

    def parts(**changes: float) -> dict[str, float]:
        return dict(zip(PARTS, map(float, formula.parts(JOB, numbers(**changes))), strict=True))

    assert set(parts().values()) == {0.0}
    places = {
        "network": {"RTT_S": 1.0},
        "queue": {"SLOT_WAIT_S": 1.0},
        "cold_load": {"COLD_S": 1.0},
        "memory": {"KV_BYTES_PER_TOKEN": 1e3, "STEP_S": 1.0},
        "prefill": {"PREFILL_FIXED_S": 1.0},
        "decode": {"STEP_S": 1.0},
        "others": {"JOBS": 1.0, "STEP_ADDED_S": 1.0},
        "price": {"PROMPT_USD": 1.0},
        "flakiness": {"FAILURE_ODDS": 1.0},
        "suspect": {"SUSPECT_UNTIL_S": 1.0},
    }
    assert tuple(places) == PARTS
    for name, changes in places.items():
        assert parts(**changes)[name] > 0.5, name


some_weights = st.lists(st.sampled_from([0.0, 0.3, 1.0, 7.0, 100.0]), min_size=len(PARTS), max_size=len(PARTS))


@given(node=some_numbers, job=questions, weights=some_weights)
def test_what_a_node_costs_at_least_is_never_more_than_its_cost(
    node: Numbers, job: MatchQuery, weights: list[float]
) -> None:
    weighed = job._replace(weights=tuple(weights))
    assert formula.lower_bound(weighed, node) <= formula.total(weighed, formula.parts(weighed, node))


def test_the_total_is_each_part_by_its_weight() -> None:
    parts = [float(number) for number in range(len(PARTS))]
    weights = tuple(float(number % 3) for number in range(len(PARTS)))
    assert formula.total(JOB, parts) == sum(parts)
    weighed = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    assert formula.total(JOB._replace(weights=weights), parts) == weighed
