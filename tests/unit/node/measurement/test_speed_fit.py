"""Exact curves come back from exact samples; noise stays within what the matcher can bear; nonsense never raises."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import Speed, validated

LENGTHS = (200.0, 2000.0, 8000.0)
BATCHES = ((1, 30.0), (4, 30.0), (16, 30.0), (1, 2000.0))

curves = st.builds(
    Speed,
    prefill_tps=st.floats(30.0, 100_000.0),
    decode_tps=st.floats(2.0, 500.0),
    ttft_s=st.floats(0.0, 0.1),
    prefill_square_s=st.just(0.0) | st.floats(1e-11, 1e-8),
    step_per_job_s=st.floats(0.0, 0.01),
    step_per_token_s=st.floats(0.0, 1e-6),
)
noise = st.lists(st.floats(0.9, 1.1), min_size=7, max_size=7)


def sampled(
    curve: Speed,
    *,
    lengths: Sequence[float] = LENGTHS,
    batches: Sequence[tuple[int, float]] = BATCHES,
    factors: Sequence[float] = (1.0,) * 7,
) -> SpeedSamples:
    disturbed = iter(factors)
    return SpeedSamples(
        prefill=tuple((tokens, curve.prefill_s(tokens) * next(disturbed)) for tokens in lengths),
        decode=tuple((jobs, each, curve.step_s(jobs, jobs * each) * next(disturbed)) for jobs, each in batches),
    )


@given(curves)
def test_an_exact_curve_is_found_from_exact_samples(curve: Speed) -> None:
    found = fit_speed(sampled(curve))
    for tokens in (1.0, 700.0, 30_000.0):
        assert found.prefill_s(tokens) == pytest.approx(curve.prefill_s(tokens), rel=2e-3, abs=2e-5)
    for jobs, each in ((1, 0.0), (8, 500.0), (64, 4000.0)):
        assert found.step_s(jobs, jobs * each) == pytest.approx(curve.step_s(jobs, jobs * each), rel=2e-3)


def test_the_fixed_cost_of_a_prompt_is_told_from_its_length() -> None:
    """20,000 tokens per second must not come out as 5,713."""
    found = fit_speed(sampled(Speed(prefill_tps=20_000.0, decode_tps=50.0, ttft_s=0.03), lengths=(200.0, 2000.0)))
    assert (found.prefill_tps, found.ttft_s, found.prefill_square_s) == (20_000.0, 0.03, 0.0)


@given(curves, noise)
def test_noise_of_a_tenth_keeps_predictions_within_fifteen_per_cent(curve: Speed, factors: list[float]) -> None:
    found = fit_speed(sampled(curve, factors=factors))
    assert found.prefill_s(2048) == pytest.approx(curve.prefill_s(2048), rel=0.15)
    for jobs in (1, 16):
        assert found.step_s(jobs, jobs * 30.0) == pytest.approx(curve.step_s(jobs, jobs * 30.0), rel=0.15)


def test_one_length_says_nothing_about_a_fixed_cost() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.4),), decode=((1, 30.0, 0.02),)))
    assert found == Speed(prefill_tps=500.0, decode_tps=50.0)


def test_two_lengths_say_nothing_about_a_square() -> None:
    curve = Speed(prefill_tps=1000.0, decode_tps=50.0, prefill_square_s=1e-6)
    assert fit_speed(sampled(curve, lengths=(200.0, 2000.0))).prefill_square_s == 0.0
    assert fit_speed(sampled(curve)).prefill_square_s == pytest.approx(1e-6)


def test_a_longer_prompt_that_was_faster_gives_no_absurd_rate() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.05), (2000.0, 0.04)), decode=((1, 30.0, 0.02),)))
    assert found.prefill_tps < 20 * 2000 / 0.04
    assert 0.04 <= found.prefill_s(2000) <= 0.05


def test_prompts_that_take_less_per_token_when_longer_have_no_negative_square() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.1), (2000.0, 0.9), (8000.0, 2.0)), decode=((1, 9.0, 0.1),)))
    assert found.prefill_square_s == 0.0
    assert found.prefill_s(8000) == pytest.approx(2.0, rel=0.35)


def test_answers_that_all_had_short_contexts_do_not_say_what_context_costs() -> None:
    curve = Speed(prefill_tps=1000.0, decode_tps=50.0, step_per_job_s=0.002, step_per_token_s=1e-6)
    assert fit_speed(sampled(curve, batches=BATCHES[:3])).step_per_token_s is None
    assert fit_speed(sampled(curve)).step_per_token_s == pytest.approx(1e-6, rel=1e-3)


def test_one_answer_alone_does_not_say_what_a_further_one_costs() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.4),), decode=((1, 30.0, 0.02), (1, 30.0, 0.02))))
    assert (found.step_per_job_s, found.batch, found.batch_decode_tps) == (None, None, None)


def test_the_largest_batch_is_reported_with_its_throughput() -> None:
    found = fit_speed(sampled(Speed(prefill_tps=1000.0, decode_tps=50.0, step_per_job_s=0.004), batches=BATCHES[:3]))
    assert found.batch == 16
    assert found.batch_decode_tps == pytest.approx(16 / 0.08)


def test_further_answers_that_made_a_step_shorter_cost_nothing() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.4),), decode=((1, 30.0, 0.05), (4, 30.0, 0.04))))
    assert found.step_per_job_s == 0.0
    assert 0.04 <= 1 / found.decode_tps <= 0.05


def test_a_server_that_serves_the_prompt_first_has_a_high_and_a_low_pace() -> None:
    curve = Speed(prefill_tps=1000.0, decode_tps=50.0, step_per_job_s=0.0)
    samples = msgspec.structs.replace(sampled(curve, batches=BATCHES[:3]), shared=(2000.0, 2.5, 25.0), writers=4)
    found = fit_speed(samples)
    assert found.prefill_pace == pytest.approx(0.8)
    assert found.decode_pace == pytest.approx(0.2)


def test_the_writers_own_steps_are_compared_with_as_many_writers() -> None:
    curve = Speed(prefill_tps=1000.0, decode_tps=50.0, step_per_job_s=0.01)
    samples = msgspec.structs.replace(sampled(curve, batches=BATCHES[:3]), shared=(2000.0, 2.5, 25.0), writers=4)
    assert fit_speed(samples).decode_pace == pytest.approx(25 * 0.05 / 2.5)


@pytest.mark.parametrize(("seconds", "steps", "paces"), [(0.5, 1e6, (1.0, 1.0)), (3600.0, 0.0, (0.01, 0.01))])
def test_paces_stay_within_their_bounds(seconds: float, steps: float, paces: tuple[float, float]) -> None:
    samples = SpeedSamples(prefill=((2000.0, 2.0),), decode=((1, 30.0, 0.02),), shared=(2000.0, seconds, steps))
    found = fit_speed(samples)
    assert (found.prefill_pace, found.decode_pace) == paces


def test_a_model_that_only_embeds_counts_as_writing_as_fast_as_it_reads() -> None:
    found = fit_speed(SpeedSamples(prefill=((200.0, 0.3), (2000.0, 2.1)), decode=()))
    assert (found.decode_tps, found.ttft_s, found.step_per_job_s) == (1000.0, 0.1, None)


def test_without_a_prompt_there_is_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="no prompt"):
        fit_speed(SpeedSamples(prefill=(), decode=((1, 30.0, 0.02),)))


wild = st.floats(0.0, 1e6)


@given(
    st.lists(st.tuples(st.floats(1.0, 1e6), wild), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 64), wild, wild), max_size=5),
    st.none() | st.tuples(wild, wild, wild),
)
def test_whatever_was_timed_the_result_is_a_valid_report(
    prefill: list[tuple[float, float]],
    decode: list[tuple[int, float, float]],
    shared: tuple[float, float, float] | None,
) -> None:
    samples = SpeedSamples(prefill=tuple(prefill), decode=tuple(decode), shared=shared)
    assert validated(fit_speed(samples))
