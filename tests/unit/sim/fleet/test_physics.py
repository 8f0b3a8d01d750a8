"""The formulas of simulated servers beside what was measured on real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.sim.fleet.physics import (
    BATCHING,
    SLOTTED,
    EngineFamily,
    PrefillColumns,
    prefill_of,
    shared_pace,
)
from sparewatt.sim.scenario import GB, SimModel
from tests.unit.sim.conftest import GPU, H200, LARGE, SMALL, make_site

LLAMA_8B = SimModel(0, "8b", 16.06 * GB, 8e9, 131_072, 1.0)
WITHIN = 0.15


def h200_step_s(jobs: int, context_tokens: int) -> float:
    site = make_site(gpu=H200)
    contexts_s = jobs * context_tokens * LLAMA_8B.kv_bytes_per_token / site.bandwidth
    return site.alone_step_s(LLAMA_8B) + (jobs - 1) * site.family.step_per_job_s + contexts_s


@pytest.mark.parametrize(("jobs", "context_tokens", "measured_ms"), [(1, 30, 5.0), (64, 1200, 7.6), (64, 8192, 20.4)])
def test_steps_are_those_of_an_h200(jobs: int, context_tokens: int, measured_ms: float) -> None:
    assert h200_step_s(jobs, context_tokens) * 1e3 == pytest.approx(measured_ms, rel=WITHIN)


@pytest.mark.parametrize(("tokens", "measured_tps"), [(128, 12_400), (2048, 45_900), (8192, 39_100)])
def test_prompts_are_read_as_on_an_h200(tokens: int, measured_tps: float) -> None:
    seconds = make_site(gpu=H200).prefill(LLAMA_8B).seconds(tokens)
    assert tokens / seconds == pytest.approx(measured_tps, rel=WITHIN)


def test_a_slotted_server_batches_less_well() -> None:
    batching, slotted = (make_site(server=kind) for kind in ("vllm", "llama.cpp"))
    assert (batching.family, slotted.family) == (BATCHING, SLOTTED)
    assert slotted.alone_step_s(SMALL) > batching.alone_step_s(SMALL)
    assert slotted.prefill(SMALL).seconds(2000) > batching.prefill(SMALL).seconds(2000)
    assert SLOTTED.step_per_job_s > 10 * BATCHING.step_per_job_s


@pytest.mark.parametrize("family", [BATCHING, SLOTTED])
def test_the_shortest_prompt_takes_some_steps(family: EngineFamily) -> None:
    curve = prefill_of(family, flops=1e15, params=4e9, alone_step_s=0.01)
    assert curve.seconds(1) == pytest.approx(max(curve.fixed_s, family.prefill_steps_min * 0.01), rel=0.01)
    assert curve.seconds(1) < curve.seconds(100_000)


def test_attention_makes_a_long_prompt_more_than_proportionally_long() -> None:
    curve = make_site().prefill(SMALL)
    assert curve.seconds(32_000) > 2.2 * curve.seconds(16_000)


def test_what_is_cached_is_attended_to_but_not_read() -> None:
    curve = make_site().prefill(SMALL)
    assert curve.seconds(8000, 4000) > curve.seconds(4000)
    assert curve.seconds(8000, 4000) + curve.seconds(4000) == pytest.approx(curve.seconds(8000) + curve.fixed_s)
    assert curve.seconds(8000, 8000) == curve.floor_s


def test_the_pieces_of_a_prompt_add_up_to_the_whole() -> None:
    curve = make_site().prefill(SMALL)
    pieces_s = [curve.piece_s(begin, 1000) for begin in range(0, 8000, 1000)]
    assert curve.fixed_s + sum(pieces_s) == pytest.approx(curve.seconds(8000))
    assert pieces_s == sorted(pieces_s)
    assert len(set(pieces_s)) == 8, "a later piece attends to all before it"


@given(st.integers(1, 100_000), st.floats(0, 1))
def test_columns_are_the_curves_of_each_machine(tokens: int, cached_share: float) -> None:
    sites = [make_site(), make_site(server="ollama"), replace(make_site(gpu=H200), speed=0.5)]
    cached = float(int(tokens * cached_share))
    for model in (SMALL, LARGE):
        curves = [site.prefill(model) for site in sites]
        found = PrefillColumns.of(curves).seconds(tokens, np.full(len(sites), cached))
        assert found.tolist() == pytest.approx([curve.seconds(tokens, cached) for curve in curves])


# reading and writing at once

seconds = st.floats(1e-4, 10.0)


@given(chunk_s=seconds, base_s=seconds, grows_s=st.floats(0.0, 1.0))
def test_each_goes_on_more_slowly_beside_the_other_and_neither_stops(
    chunk_s: float, base_s: float, grows_s: float
) -> None:
    pace = shared_pace(chunk_s, base_s + grows_s, base_s)
    assert 0.0 < pace.prefill <= 1.0
    assert 0.0 < pace.decode <= 1.0 + 1e-12


def test_a_prompt_gets_nearly_all_and_writers_a_token_per_chunk() -> None:
    pace = shared_pace(chunk_s=0.2, step_s=0.012, base_s=0.01)
    assert pace.prefill == pytest.approx(0.2 / 0.202)
    assert pace.decode == pytest.approx(0.012 / 0.202)


def test_a_chunk_that_takes_less_than_a_step_costs_one() -> None:
    pace = shared_pace(chunk_s=0.001, step_s=0.01, base_s=0.01)
    assert (pace.prefill, pace.decode) == pytest.approx((0.1, 1.0))


def test_a_machines_speed_scales_everything_but_the_fixed_parts() -> None:
    whole, half = make_site(), replace(make_site(), speed=0.5)
    assert half.bandwidth == whole.bandwidth / 2
    assert half.prefill(SMALL).token_s == pytest.approx(2 * whole.prefill(SMALL).token_s)
    assert whole.bandwidth == BATCHING.bandwidth_share * GPU.bandwidth_gb_s * GB
