"""One stated load for every price: what the hour of a machine is worth per token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.money import parse_usd
from sparewatt.protocol.link.node_report import PRICE_NANO_MAX, PriceBasis, Speed, validated
from sparewatt.protocol.link.reference_load import reference_basis, reference_price

CURVE = Speed(
    prefill_tps=10_000, decode_tps=50, ttft_s=0.1, prefill_square_s=1e-7, step_per_job_s=0.001, step_per_token_s=1e-6
)


def test_the_reference_load_is_eight_answers_with_a_thousand_tokens_each() -> None:
    step_s = 0.02 + 7 * 0.001 + 8000 * 1e-6
    basis = reference_basis(CURVE, slots=64)
    assert basis.prompt_tps == pytest.approx(1000 / (0.1 + 0.1 + 0.1), rel=1e-3)
    assert basis.completion_tps == pytest.approx(8 / step_s, rel=1e-3)
    assert basis.jobs == 8


def test_a_server_with_fewer_slots_counts_with_those() -> None:
    assert reference_basis(CURVE, slots=2).completion_tps == pytest.approx(2 / 0.023, rel=1e-3)
    assert reference_basis(CURVE, slots=0).jobs == 1


def test_a_server_that_was_measured_with_one_answer_counts_with_one() -> None:
    assert reference_basis(Speed(prefill_tps=1000, decode_tps=50), slots=64) == PriceBasis(1000.0, 50.0)


@pytest.mark.parametrize(
    ("tokens_per_s", "price"), [(100.0, "1"), (99.0, "1"), (96.0, "1"), (90.0, "1.1"), (1234.0, "0.081"), (7.0, "14")]
)
def test_a_price_has_two_significant_digits(tokens_per_s: float, price: str) -> None:
    assert reference_price(parse_usd("0.36"), tokens_per_s) == parse_usd(price)


def test_a_price_stays_within_what_a_gateway_takes() -> None:
    assert reference_price(parse_usd("1000000"), 1e-3) == PRICE_NANO_MAX
    assert reference_price(0, 50.0) == 0


@given(
    st.builds(
        Speed,
        prefill_tps=st.floats(1e-3, 1e7),
        decode_tps=st.floats(1e-3, 1e7),
        ttft_s=st.floats(0, 3600),
        prefill_square_s=st.floats(0, 1e-3),
        step_per_job_s=st.none() | st.floats(0, 3600),
        step_per_token_s=st.none() | st.floats(0, 1),
    ),
    st.integers(0, 5000),
)
def test_every_valid_curve_has_a_valid_basis(speed: Speed, slots: int) -> None:
    assert validated(reference_basis(speed, slots=slots))
