"""The page of the GPU bench: verdicts, the simulator beside the card, and what is left out when a step failed."""

from __future__ import annotations

from typing import Any

import pytest
from bench.gpu_report import context_token_s, fitted_family, physics_rows, report, simulated_gpu, speeds
from bench.measured_speed import Comparison

from sparewatt.sim.fleet.physics import BATCHING, SQUARE_SHARE
from sparewatt.sim.scenario import SimGpu

PARAMETERS, KV_BYTES = 8_030_261_248, 131_072
CURVE = {"prefill_tps": 50_000.0, "decode_tps": 200.0, "ttft_s": 0.005, "step_per_job_s": 0.00004}
H200 = {"model": "NVIDIA H200", "vram_bytes": 150_109_880_320, "driver": "580"}


def direct(prefill: list[tuple[int, float]], decode: list[tuple[int, int, float]]) -> dict[str, Any]:
    return {
        "model": "random-llama-3.1-8b",
        "parameters": PARAMETERS,
        "kv_bytes_per_token": KV_BYTES,
        "slots": 64,
        "context": 9216,
        "attention": "Triton",
        "not_captured": None,
        "prefill": prefill,
        "decode": decode,
    }


def found_with(**parts: Any) -> dict[str, Any]:
    doctor = {"gpus": [H200], "readings": [{"power_watts": 78.0}], "measured": None}
    return {"python": "3.12.3", "failed": {}, "seconds": {}, "doctor": doctor, **parts}


def metered(*timings: tuple[int, float, float], speed: dict[str, float] | None = None) -> dict[str, Any]:
    return {"quick": CURVE, "full": speed or CURVE, "took_s": 3.2, "timings": [list(each) for each in timings]}


def row_of(page: str, start: str) -> str:
    [line] = [line for line in page.splitlines() if line.startswith(f"| {start}")]
    return line


def test_a_curve_within_the_bound_has_met_it_and_another_has_lost() -> None:
    page = report(found_with(meter=metered((0, 2048, 0.046), (1, 80, 0.004))))
    assert row_of(page, "prompt of 2048 tokens").endswith("| -0.1% | met |")
    assert row_of(page, "step with 1 at once").endswith("| +25.0% | **lost** |")


def test_a_long_context_is_shown_and_not_judged() -> None:
    page = report(found_with(meter=metered(), direct=direct([(2048, 0.046)], [(1, 8192, 0.0001)])))
    assert row_of(page, "step with 1 at once, 8192").endswith("| not judged |")


def test_what_the_gateway_publishes_is_judged_before_what_the_meter_found() -> None:
    node = {
        "first": {"measured": CURVE},
        "full": {"measured": CURVE | {"decode_tps": 100.0}},
        "first_s": 1,
        "full_s": 9,
    }
    found = found_with(meter=metered((1, 80, 0.005)), node=node)
    assert list(speeds(found)) == ["the meter, quick", "the meter, full", "published at first", "published"]
    assert row_of(report(found), "step with 1 at once").endswith("| +100.0% | **lost** |")


def test_contexts_cost_by_the_card_where_the_curve_does_not_say() -> None:
    facts = {"bandwidth_bytes_s": {"value": 4e12, "source": "measured"}}
    status = {"server": {"facts": facts}, "models": [{"kv_bytes_per_token": KV_BYTES}]}
    assert context_token_s(found_with(status=status)) == pytest.approx(KV_BYTES / 4e12)
    assert context_token_s(found_with()) == 0.0


def card() -> SimGpu:
    gpu = simulated_gpu(found_with())
    assert gpu is not None
    return gpu


def test_the_card_is_found_in_the_simulators_table_by_its_whole_name() -> None:
    assert card().name == "H200"
    other = found_with(doctor={"gpus": [H200 | {"model": "NVIDIA H2000 Ti"}], "readings": []})
    assert simulated_gpu(other) is None


def simulated() -> dict[str, Any]:
    """Timings exactly as the simulator has them."""
    lengths, steps = (128, 512, 1024, 2048, 4096, 8192), [(1, 1200), (16, 1200), (64, 1200), (1, 8192), (64, 8192)]
    empty = direct([(tokens, 1.0) for tokens in lengths], [(batch, context, 1.0) for batch, context in steps])
    seconds = [sim_s for _, _, sim_s in physics_rows(found_with(direct=empty), card())]
    prefill = list(zip(lengths, seconds[: len(lengths)], strict=True))
    decode = [(*step, s) for step, s in zip(steps, seconds[len(lengths) :], strict=True)]
    return found_with(direct=direct(prefill, decode))


def test_the_simulators_constants_come_back_from_its_own_timings() -> None:
    found = fitted_family(simulated(), card())
    assert found is not None
    fitted, square_share = found
    for name in ("bandwidth_share", "flops_share", "step_fixed_s", "step_per_job_s", "prefill_fixed_s"):
        assert getattr(fitted, name) == pytest.approx(getattr(BATCHING, name), rel=1e-3), name
    assert fitted.prefill_steps_min == pytest.approx(BATCHING.prefill_steps_min, rel=0.05)
    assert square_share == pytest.approx(SQUARE_SHARE, rel=0.01)


def test_the_page_says_how_far_the_simulator_is_off() -> None:
    found = simulated()
    assert row_of(report(found), "step of 64 with 8,192").endswith("| +0.0% |")
    batch, context, seconds = found["direct"]["decode"][-1]
    found["direct"]["decode"][-1] = (batch, context, 2 * seconds)
    assert row_of(report(found), "step of 64 with 8,192").endswith("| -50.0% |")


def test_a_constant_is_never_negative() -> None:
    found = simulated()
    found["direct"]["decode"] = [(1, 1200, 0.006), (16, 1200, 0.0059), (64, 1200, 0.0058), (64, 8192, 0.02)]
    fitted = fitted_family(found, card())
    assert fitted is not None
    assert fitted[0].step_per_job_s == 0.0
    assert fitted[0].step_fixed_s >= 0.0


def test_timings_that_do_not_grow_are_fitted_by_nothing_and_still_reported() -> None:
    found = simulated()
    found["direct"]["decode"] = [(1, 1200, 0.006), (16, 1200, 0.005), (64, 1200, 0.004), (64, 8192, 0.004)]
    assert fitted_family(found, card()) is None
    assert row_of(report(found), "step of 64 with 8,192")


def test_predictions_are_counted_by_their_factor() -> None:
    requests = [{"predicted_s": predicted, "first_token_s": 0.1} for predicted in (0.1, 0.14, 0.2, 0.5, None)]
    row = row_of(report(found_with(predictions_8=requests)), "8 ")
    assert row.startswith("| 8 | 4 | 50% | 75% |")


def test_without_any_result_the_page_says_what_failed() -> None:
    page = report({"python": "3.12.3", "failed": {"doctor": "it broke\nTraceback"}, "seconds": {}})
    assert "- doctor: it broke" in page
    assert "## Curves" not in page


def test_an_error_is_relative_to_the_direct_timing() -> None:
    assert Comparison("x", 0.5, 1.0).error == -0.5
