from __future__ import annotations

import math

import pytest

from sparewatt.inference.matcher import terms
from sparewatt.protocol.node import NodeLoad, Speed
from tests.unit.inference.nodes import GIB, SPEED, a_job, a_model, a_row, some_specs


def test_the_network_costs_one_round_trip() -> None:
    assert terms.network_s(a_row(rtt_s=0.25)) == 0.25


@pytest.mark.parametrize(
    ("state", "weights_bytes", "seconds"),
    [
        ("warm", 100 * GIB, 0.0),
        ("loading", 100 * GIB, terms.LOADING_S),
        ("on_disk", 0, 10.0),
        ("on_disk", 6_000_000_000, 12.0),
        ("on_disk", 100 * GIB, 30.0),
    ],
)
def test_a_cold_start_takes_10_to_30_seconds_and_a_warm_one_none(
    state: str, weights_bytes: int, seconds: float
) -> None:
    assert terms.cold_load_s(a_model(state=state, weights_bytes=weights_bytes)) == seconds


@pytest.mark.parametrize(("jobs", "beside"), [(0, 0), (2, 2), (3, 3), (50, 3)])
def test_a_job_shares_its_steps_with_the_other_slots_at_most(jobs: int, beside: int) -> None:
    assert terms.running_beside(a_row(own_jobs=jobs)) == beside


def test_company_slows_each_step() -> None:
    assert terms.step_s(a_row(), a_model()) == 1 / 50
    assert terms.step_s(a_row(own_jobs=2), a_model()) == pytest.approx((1 + 2 * terms.BATCH_SLOWDOWN) / 50)


def test_an_idle_node_has_no_queue() -> None:
    assert terms.queue_s(a_job(), a_row(), a_model()) == 0.0


def test_prompts_that_are_still_being_read_hold_up_the_next() -> None:
    assert terms.queue_s(a_job(), a_row(own_jobs=1, own_prompt_tokens=3000), a_model()) == pytest.approx(3.0)


def test_jobs_beyond_the_slots_are_waited_for_by_their_expected_output() -> None:
    row = a_row(own_jobs=5, own_output_tokens=5 * 100)
    step_s = terms.step_s(row, a_model())
    assert terms.queue_s(a_job(), row, a_model()) == pytest.approx(2 * 100 * step_s / 4)


def test_foreign_jobs_queue_with_this_jobs_own_size() -> None:
    row = a_row(load=NodeLoad(foreign=4))
    assert terms.queue_s(a_job(), row, a_model()) == pytest.approx(200 * terms.step_s(row, a_model()) / 4)


def test_reading_takes_the_measured_first_token_or_the_prompt_whichever_is_longer() -> None:
    assert terms.prefill_s(a_job(prompt_tokens=10), a_model()) == SPEED.ttft_s
    assert terms.prefill_s(a_job(prompt_tokens=2000), a_model()) == pytest.approx(2.0)


def test_writing_takes_a_step_per_token() -> None:
    assert terms.decode_s(a_job(), a_row(), a_model()) == pytest.approx(200 / 50)


def test_a_tenth_of_a_cent_is_worth_ten_seconds() -> None:
    model = a_model(prompt_price_nano=0, completion_price_nano=5_000_000_000)
    assert terms.price_nano(a_job(), model) == 1_000_000
    assert terms.price_s(a_job(), model) == pytest.approx(10.0)


def test_a_free_model_costs_nothing() -> None:
    assert terms.price_s(a_job(), a_model(prompt_price_nano=0, completion_price_nano=0)) == 0.0


def test_a_speed_of_next_to_nothing_keeps_every_term_finite() -> None:
    model = a_model(measured=Speed(prefill_tps=5e-324, decode_tps=5e-324))
    row = a_row(specs=some_specs(model), own_jobs=9, own_prompt_tokens=10**9, own_output_tokens=10**9)
    found = (terms.queue_s(a_job(), row, model), terms.prefill_s(a_job(), model), terms.decode_s(a_job(), row, model))
    assert all(math.isfinite(term) for term in found)


def test_an_unmeasured_model_has_no_speed() -> None:
    with pytest.raises(ValueError, match="measured"):
        terms.speed_of(a_model(measured=None))
