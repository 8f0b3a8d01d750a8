"""Each term by itself: what it is in numbers, and that a column of numbers gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.inference.matcher import formula
from sparewatt.inference.matcher.entries import Field
from sparewatt.inference.matcher.formula import PARTS, JobNumbers
from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.scan import balanced_parts

JOB = JobNumbers(prompt_tokens=500.0, output_tokens=200.0, strain=1.0, usd_weight=1e4)


def test_the_network_costs_one_round_trip() -> None:
    assert formula.network(0.25) == 0.25


def test_reading_is_the_short_prompt_and_the_rest_at_the_prefill_speed() -> None:
    assert formula.reading(JOB, 1000.0, 0.1, 1.0) == pytest.approx(0.1 + 470 / 1000)


@pytest.mark.parametrize("prompt_tokens", [1.0, 29.0, 30.0])
def test_a_prompt_as_short_as_the_measured_one_takes_what_was_measured(prompt_tokens: float) -> None:
    assert formula.reading(JOB._replace(prompt_tokens=prompt_tokens), 1000.0, 0.1, 1.0) == 0.1


def test_a_node_that_was_seen_to_be_slower_reads_slower() -> None:
    assert formula.reading(JOB, 1000.0, 0.1, 0.5) == 2 * formula.reading(JOB, 1000.0, 0.1, 1.0)


@pytest.mark.parametrize(("jobs", "factor"), [(0.0, 1.0), (0.5, 1.0), (0.6, 2.0), (1.0, 2.0), (50.0, 2.0)])
def test_reading_and_writing_halve_each_other(jobs: float, factor: float) -> None:
    assert formula.halving(jobs) == factor


def step(job: JobNumbers = JOB, **changes: float) -> float:
    values: dict[str, float] = {
        "jobs": 0.0,
        "step_s": 0.02,
        "per_job_s": 0.001,
        "other_bytes": 0.0,
        "kv_read_bytes": 0.0,
        "kv_token": 100_000.0,
        "bandwidth": 1e12,
        "share": 0.0,
        "speed": 1.0,
    } | changes
    return float(formula.step(job, *values.values()))


def test_a_step_is_the_measured_one_and_the_reading_of_half_its_own_context() -> None:
    assert step(kv_token=0.0) == 0.02
    assert step() == pytest.approx(0.02 + 600 * 100_000 / 1e12)


def test_company_other_weights_and_their_context_slow_each_step() -> None:
    assert step(jobs=4.0) == pytest.approx(step() + 4 * 0.001)
    assert step(other_bytes=8e9) == pytest.approx(step() + 0.008)
    assert step(kv_read_bytes=2e9) == pytest.approx(step() + 0.002)


def test_prompts_being_read_take_half_of_their_share_of_each_step() -> None:
    assert step(share=1.0) == pytest.approx(2 * step())
    assert step(share=0.5) == pytest.approx(step() / 0.75)


def test_a_node_that_was_seen_to_be_slower_writes_slower() -> None:
    assert step(speed=0.25) == pytest.approx(4 * step())


def test_a_context_that_fits_waits_for_nobody() -> None:
    need = 700 * 1000.0
    assert formula.memory_wait(JOB, 10.0, 1000.0, need, 0.0) == 0.0
    assert formula.memory_wait(JOB, 10.0, 0.0, 1e9, 0.0) == 0.0


def test_a_context_that_does_not_fit_waits_for_a_share_of_its_own_writing() -> None:
    need = 700 * 1000.0
    assert formula.memory_wait(JOB, 10.0, 1000.0, need, need / 2) == pytest.approx(0.35 * 10 * 1.5)
    assert formula.memory_wait(JOB, 10.0, 1000.0, need, need) == pytest.approx(0.35 * 10 * 2)


def test_waiting_for_memory_is_bounded() -> None:
    assert formula.memory_wait(JOB, 1e6, 1000.0, 0.0, 1e15) == formula.KV_WAIT_S_MAX


def test_an_idle_node_slows_nobody_and_each_job_there_counts() -> None:
    def slowing(jobs: float) -> float:
        return float(formula.slowing(JOB, jobs, 0.5, 0.001, 100_000.0, 1e12))

    assert slowing(0.0) == 0.0
    assert slowing(1.0) == pytest.approx(2.0 * (0.25 + 100 * (0.001 + 500 * 100_000 / 1e12)))
    assert slowing(3.0) == pytest.approx(3 * slowing(1.0))


def test_scarcity_counts_only_where_another_model_is_shorter_of_nodes() -> None:
    assert formula.scarcity(JOB, 1.0, 0.5, 4.0) == 0.0
    assert formula.scarcity(JOB, 0.2, 0.5, 4.0) == 0.0
    assert formula.scarcity(JOB, 3.0, 0.5, 4.0) == pytest.approx(0.3 * 2.0 * (0.5 + 0.5))


def test_a_tenth_of_a_cent_is_worth_ten_seconds_when_balanced() -> None:
    assert formula.price(JOB, 0.0, 0.001 / 200) == pytest.approx(10.0)
    assert formula.price(JOB, 0.001 / 500, 0.0) == pytest.approx(10.0)
    assert formula.price(JOB._replace(usd_weight=4e4), 0.0, 0.001 / 200) == pytest.approx(40.0)
    assert formula.price(JOB._replace(usd_weight=0.0), 1.0, 1.0) == 0.0


def test_flakiness_is_a_second_and_half_of_everything_by_the_odds() -> None:
    assert formula.flakiness(0.0, 10.0) == 0.0
    assert formula.flakiness(0.5, 10.0) == pytest.approx(3.0)


# the same lines on floats and on columns

amounts = st.floats(0.0, 1e15)
counts = st.floats(0.0, 1e5)
seconds = st.floats(0.0, 1e9)
rates = st.floats(1e-3, 1e18)
shares = st.floats(0.0, 1.0)
speeds = st.floats(1e-7, 1.0)
tokens = st.integers(1, 1 << 24).map(float)
job_numbers = st.builds(JobNumbers, tokens, tokens, st.floats(0.0, 1e6), st.sampled_from([0.0, 1e4, 4e4]))

TERMS: dict[Callable[..., Any], tuple[st.SearchStrategy[float], ...]] = {
    formula.network: (seconds,),
    formula.halving: (counts,),
    formula.flakiness: (st.floats(0.0, 1e6), seconds),
    formula.reading: (rates, seconds, speeds),
    formula.step: (counts, seconds, seconds, amounts, amounts, amounts, rates, shares, speeds),
    formula.memory_wait: (seconds, amounts, amounts, amounts),
    formula.slowing: (counts, seconds, seconds, amounts, rates),
    formula.scarcity: (st.floats(0.0, 1e6), seconds, seconds),
    formula.price: (st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
}
WITHOUT_JOB = (formula.network, formula.halving, formula.flakiness)


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.__name__)
@given(data=st.data(), job=job_numbers)
def test_a_term_gives_the_same_bits_for_a_number_and_for_a_column(
    term: Callable[..., Any], data: st.DataObject, job: JobNumbers
) -> None:
    rows = data.draw(st.lists(st.tuples(*TERMS[term]), min_size=1, max_size=5))
    first = () if term in WITHOUT_JOB else (job,)
    alone = [float(term(*first, *row)) for row in rows]
    together = term(*first, *(np.array(column) for column in zip(*rows, strict=True)))
    assert together.tolist() == alone
    assert all(np.isfinite(alone))
    assert min(alone) >= 0.0


def test_every_part_has_its_term_and_its_place() -> None:
    """A column of numbers with one thing at a time: it shows in its own part (and in what follows from it)."""
    data = np.zeros((len(Field), 1))
    for field in (Field.SPEED, Field.PREFILL_TPS, Field.BANDWIDTH, Field.CONNECTED):
        data[field] = 1e12
    data[Field.SPEED] = 1.0

    def parts(**changes: float) -> dict[str, float]:
        changed = data.copy()
        for name, value in changes.items():
            changed[Field[name]] = value
        found = balanced_parts(JOB, changed, now_s=0.0, rules=HealthRules())
        return {name: float(part[0]) for name, part in zip(PARTS, found, strict=True)}

    assert max(parts().values()) < 1e-6
    for name, changes in {
        "network": {"RTT_S": 1.0},
        "queue": {"BACKLOG_S": 1.0},
        "cold_load": {"COLD_S": 1.0},
        "memory": {"KV_BYTES_PER_TOKEN": 1e3, "STEP_S": 1.0},
        "prefill": {"FIXED_S": 1.0},
        "decode": {"STEP_S": 1.0},
        "others": {"JOBS": 1.0, "FIXED_S": 1.0},
        "scarcity": {"STRAIN_MAX": 9.0, "FIXED_S": 1.0},
        "price": {"PROMPT_USD": 1.0},
        "flakiness": {"FAILURE_ODDS": 1.0},
        "suspect": {"SUSPECT_UNTIL_S": 1.0},
    }.items():
        assert parts(**changes)[name] > 0.5, name
