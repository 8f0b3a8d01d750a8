"""The figures of `make bench-servers`, from made-up runs, and the capacity that its loads are shares of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.batching_engines import ENGINES
from bench.real_servers import (
    FLOOR,
    MIXED,
    MIXES,
    OURS,
    ServerRun,
    capacity_rps,
    figures,
    over_floor,
    prediction_table,
    ratio_table,
    ratios,
    spread,
    table,
    within,
)


def a_run(target: str = OURS, *, scale: float = 1.0, mix: str = MIXED.name, load: float = 0.6) -> ServerRun:
    ttft_s = [scale * (number + 1) / 100 for number in range(100)]
    jobs = {engine.name: 20 for engine in ENGINES}
    return ServerRun(target, mix, load, ttft_s=ttft_s, e2e_s=[2 * time_s for time_s in ttft_s], lost={}, jobs=jobs)


class TestCapacity:
    def test_a_faster_engine_serves_more(self) -> None:
        found = [capacity_rps(engine, seed=1) for engine in ENGINES]

        assert found == sorted(found, reverse=True)

    def test_it_is_near_what_reading_alone_allows(self) -> None:
        engine = ENGINES[1]

        assert 0.7 * engine.prefill_tps / 2000 < capacity_rps(engine, seed=1) < 1.05 * engine.prefill_tps / 2000

    def test_slower_steps_cost_capacity(self) -> None:
        slower = replace(ENGINES[0], step_s=0.1)

        assert capacity_rps(slower, seed=1) < 0.8 * capacity_rps(ENGINES[0], seed=1)


class TestRatios:
    def test_the_better_of_the_others_counts(self) -> None:
        runs = [a_run(scale=1.0), a_run("one", scale=3.0), a_run("two", scale=2.0)]

        assert set(ratios(runs, 0.6)) == set(figures(runs[0]))
        assert list(ratios(runs, 0.6).values()) == pytest.approx([2.0] * len(figures(runs[0])))

    def test_a_slower_target_is_told_as_such(self) -> None:
        assert ratios([a_run(scale=2.0), a_run("other")], 0.6)["first token mean"] == pytest.approx(0.5)

    def test_other_loads_and_fleets_are_left_out(self) -> None:
        runs = [a_run(), a_run("other", scale=2.0), a_run(scale=9.0, mix="all vLLM"), a_run(scale=9.0, load=1.1)]

        assert ratios(runs, 0.6)["completion p95"] == pytest.approx(2.0)

    def test_without_others_there_is_no_ratio(self) -> None:
        assert ratios([a_run()], 0.6) == {}
        assert "-" in ratio_table([a_run()])

    def test_the_computed_floor_is_no_router_to_be_better_than(self) -> None:
        runs = [a_run(scale=1.5), a_run(FLOOR), a_run("other", scale=3.0)]

        assert ratios(runs, 0.6)["first token p95"] == pytest.approx(2.0)
        assert over_floor(runs, 0.6)["first token p95"] == pytest.approx(1.5)
        assert over_floor(runs[:1], 0.6) == {}

    def test_the_spread_is_that_of_our_own_fleets(self) -> None:
        runs = [a_run(), a_run(scale=1.3, mix="all vLLM"), a_run("other", scale=50.0)]

        assert list(spread(runs, 0.6).values()) == pytest.approx([1.3] * len(figures(runs[0])))


class TestPredictions:
    PAIRS = ((1.0, 1.0), (1.4, 1.0), (1.0, 1.4), (2.0, 1.0), (1.0, 2.9), (9.0, 1.0))

    @pytest.mark.parametrize(("factor", "share"), [(1.5, 3 / 6), (3.0, 5 / 6), (10.0, 1.0)])
    def test_a_factor_counts_in_both_directions(self, factor: float, share: float) -> None:
        assert within(self.PAIRS, factor) == pytest.approx(share)

    def test_no_prediction_is_no_success(self) -> None:
        assert within([], 3.0) == 0.0

    def test_the_table_has_a_row_for_each_of_our_runs_with_predictions(self) -> None:
        ours = a_run()
        ours.predictions = list(self.PAIRS)

        assert prediction_table([ours, a_run("other"), a_run()]).count("\n") == 2
        assert "| 60% | mixed | 6 | 50% | 83% |" in prediction_table([ours])


def test_lost_requests_are_counted_by_their_reason() -> None:
    run = a_run()
    run.lost = {"status 429": 3, "timed out": 1}

    assert run.lost_count == 4
    assert "3 status 429, 1 timed out" in table([run])


def test_every_fleet_names_each_engine() -> None:
    assert all(len(mix.kinds) == len(ENGINES) for mix in MIXES)
    assert {kind for mix in MIXES for kind in mix.kinds} == {"vllm", "sglang", "llama.cpp"}
