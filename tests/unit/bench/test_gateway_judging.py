"""Verdicts of `make bench-gateway`: what counts, what is lost, and when nothing may be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.gateway.judging import GOALS, Goal, GoalResult, Samples, judge, per_s, why_noisy
from bench.gateway.report import BEGIN_MARK, END_MARK, between_marks, goals_table, summary_table
from bench.gateway.sample import Sample

RATE = next(goal for goal in GOALS if goal.scenario == "N" and "nginx" in goal.what)
MEMORY = next(goal for goal in GOALS if goal.scenario == "memory")


def sample(target: str, number: int, *, scenario: str = "N", faults: list[str] | None = None, **load: Any) -> Sample:
    return Sample(scenario, target, number, load, cpu_s=1.0, faults=faults or [])


def rates(ours: list[float], others: list[float]) -> list[Sample]:
    found = [sample("sparewatt", number, per_s=value) for number, value in enumerate(ours)]
    return found + [sample("nginx", number, per_s=value) for number, value in enumerate(others)]


def verdict(samples: list[Sample], goal: Goal = RATE) -> GoalResult:
    return judge(Samples(samples), [goal])[0]


def test_a_ratio_is_taken_within_each_round_and_the_median_counts() -> None:
    found = verdict(rates([40, 100, 10], [100, 200, 50]))
    assert found.rounds == [0.4, 0.5, 0.2]
    assert (found.measured, found.verdict) == (0.4, "met")


def test_less_than_the_least_is_lost() -> None:
    assert verdict(rates([30], [100])).verdict == "lost"


def test_more_than_the_most_is_lost() -> None:
    small, large = (Sample("memory", "sparewatt", 0, {}, 0.0, memory_bytes=size) for size in (15_000_000, 15_100_000))
    assert verdict([small], MEMORY).verdict == "met"
    assert verdict([large], MEMORY).verdict == "lost"


def test_a_fault_of_ours_loses_the_goal_however_good_the_other_rounds_were() -> None:
    spoiled = sample("sparewatt", 1, faults=["3 errors"], per_s=99.0)
    assert verdict([*rates([90], [100]), spoiled]).verdict == "lost"


def test_a_fault_of_a_peer_takes_its_round_out() -> None:
    found = verdict([*rates([90, 90], [100]), sample("nginx", 1, faults=["3 errors"], per_s=1.0)])
    assert found.rounds == [0.9]


def test_a_round_of_ours_that_something_else_disturbed_is_taken_out_and_not_lost() -> None:
    disturbed = sample("sparewatt", 1, per_s=1.0, overrun_ms=200.0)
    found = verdict([*rates([90], [100, 100]), disturbed])
    assert (found.rounds, found.verdict) == ([0.9], "met")


def test_what_was_not_measured_is_neither_met_nor_lost() -> None:
    assert verdict(rates([90], [])).verdict == "not measured"


def light(p99_ms: float) -> list[Sample]:
    return [sample("direct", 0, scenario="L", latency_ms={"p50": 0.1, "p99": p99_ms})]


def test_a_quiet_machine_is_no_reason_to_refuse() -> None:
    assert why_noisy(Samples(light(0.3))) is None


@pytest.mark.parametrize("samples", [light(0.31), []], ids=["noisy", "not known"])
def test_a_machine_that_is_noisy_or_not_known_to_be_quiet_is_refused(samples: list[Sample]) -> None:
    assert why_noisy(Samples(samples)) is not None


def test_medians_pass_over_what_is_spoiled() -> None:
    samples = Samples([*rates([1, 3], []), sample("sparewatt", 2, faults=["no answer"], per_s=100.0)])
    assert samples.median("N", "sparewatt", per_s) == 2


def test_losses_stand_in_the_tables_like_wins() -> None:
    judged = judge(Samples(rates([10], [100])), [RATE])
    assert "| ≥ 0.33 times | 0.1 times | **lost** | 0.1 |" in goals_table(judged)
    assert "| ≥ 0.33 times | 0.1 times | lost |" in summary_table(judged)


def test_a_table_is_put_between_the_marks_and_nothing_else_changes() -> None:
    text = f"before\n{BEGIN_MARK}\nold\n{END_MARK}\nafter\n"
    assert between_marks(text, "new") == f"before\n{BEGIN_MARK}\nnew\n{END_MARK}\nafter\n"


def test_a_text_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        between_marks("nothing here", "new")


def test_the_index_of_the_measurements_has_a_place_for_the_table() -> None:
    index = Path(__file__).parents[3] / "docs" / "measurements" / "README.md"
    assert "\nnew\n" in between_marks(index.read_text(encoding="utf-8"), "new")
