"""Figures that cannot be, or should not: refused when they are read; and if one got in, a reason, never a win."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from sparewatt.core.ids import ModelId
from sparewatt.inference.dispatch.node_selection import no_match_error
from sparewatt.inference.matcher.formula import RANKINGS, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision, Rejection
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.link.node_report import ModelReport, NodeLoad, NodeSpecs, Speed, validated
from tests.unit.inference.nodes import NOW_S, a_job, a_model, a_table, node_id, situation, some_specs

HONEST, ODD = node_id(1), node_id(2)
NO_NUMBER = [math.nan, math.inf, -math.inf]
PREDICTED = [ranking for ranking in RANKINGS.values() if ranking.unit == "s"]

by_seconds = pytest.mark.parametrize("ranking", PREDICTED, ids=lambda ranking: ranking.name)
any_policy = pytest.mark.parametrize("ranking", RANKINGS.values(), ids=list(RANKINGS))


def speed(**changes: Any) -> Speed:
    return msgspec.structs.replace(Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.1), **changes)


def decide(odd: NodeSpecs | None, ranking: Ranking, load: NodeLoad | None = None) -> Decision:
    """An honest node, and an odd one beside it."""
    table = a_table(1)
    if odd is not None:
        table.connect(ODD, odd, now_s=NOW_S)
        table.set_load(ODD, load or NodeLoad(), now_s=NOW_S)
    return match(a_job(), table, situation(), ranking=ranking, seed=1)


IMPOSSIBLE = [
    *(("decode_tps", value) for value in (*NO_NUMBER, 0.0, -50.0, 1e300)),
    *(("prefill_tps", value) for value in (*NO_NUMBER, 0.0, -1000.0, 1e300)),
    *(("ttft_s", value) for value in (math.nan, math.inf)),
    *(("step_per_job_s", value) for value in (*NO_NUMBER, -1.0)),
    *(("prefill_square_s", value) for value in (*NO_NUMBER, -1e-9)),
    *(("step_per_token_s", value) for value in (math.nan, -math.inf, -1e-9)),
    *(("prefill_pace", value) for value in (*NO_NUMBER, 0.0, -1.0, 1.5)),
    *(("decode_pace", value) for value in (*NO_NUMBER, 0.0, -1.0, 1.5)),
]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_an_impossible_speed_is_refused_when_it_is_read(name: str, value: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        validated(some_specs(a_model(measured=speed(**{name: value}))))


@by_seconds
@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_an_impossible_speed_that_got_in_counts_as_not_measured(ranking: Ranking, name: str, value: float) -> None:
    decision = decide(some_specs(a_model(measured=speed(**{name: value}))), ranking)
    assert [item.node_id for item in decision.ranked] == [HONEST]
    assert decision.rejected_by_reason == {Rejection.NOT_MEASURED: 1}
    assert [(item.node_id, item.reason) for item in decision.rejected] == [(ODD, Rejection.NOT_MEASURED)]


@by_seconds
@pytest.mark.parametrize(
    "odd",
    [
        some_specs(a_model(prompt_price_nano=-1)),
        some_specs(a_model(completion_price_nano=-(10**12))),
        some_specs(a_model(weights_bytes=-1)),
        some_specs(a_model(kv_bytes_per_token=-1)),
        some_specs(a_model(context_length=-1)),
        some_specs(vram_bytes=-1),
        some_specs(tflops=math.nan),
        some_specs(hourly_price_nano=-1),
        some_specs(bandwidth_bytes_s=math.nan),
        some_specs(bandwidth_bytes_s=-1.0),
    ],
)
def test_a_negative_figure_is_refused_and_if_it_got_in_wins_nothing(ranking: Ranking, odd: NodeSpecs) -> None:
    with pytest.raises(msgspec.ValidationError):
        validated(odd)
    decision = decide(odd, ranking)
    assert [item.node_id for item in decision.ranked] == [HONEST]
    assert sum(decision.rejected_by_reason.values()) == 1


@pytest.mark.parametrize("value", [*NO_NUMBER, -1.0, 1e300])
@pytest.mark.parametrize("name", ["foreign_backlog_s", "prefill_share"])
@by_seconds
def test_an_impossible_load_is_refused_and_if_it_got_in_costs_stay_finite(
    ranking: Ranking, name: str, value: float
) -> None:
    load = msgspec.structs.replace(NodeLoad(), **{name: value})
    with pytest.raises(msgspec.ValidationError):
        validated(load)
    decision = decide(some_specs(), ranking, load)
    assert {item.node_id for item in decision.ranked} == {HONEST, ODD}
    assert all(math.isfinite(figure) for item in decision.ranked for figure in (item.cost, *item.parts))


@by_seconds
@pytest.mark.parametrize(
    "changes",
    [
        {"vram_bytes": 10 * 10**12},
        {"tflops": 1e6},
        {"hourly_price_nano": 0},
        {"gpu_count": 1024},
        {"vram_bytes": 10 * 10**12, "tflops": 1e6, "hourly_price_nano": 0, "gpu": "H100", "tflops_measured": 1e6},
    ],
    ids=["10 TB", "10^6 TFLOPS", "$0 an hour", "1024 cards", "all at once"],
)
def test_absurd_specs_that_a_report_may_hold_win_nothing(ranking: Ranking, changes: dict[str, Any]) -> None:
    assert decide(some_specs(**changes), ranking) == decide(some_specs(), ranking)


@by_seconds
def test_claiming_speed_wins_nothing(ranking: Ranking) -> None:
    boast = a_model(claimed=Speed(prefill_tps=1e7, decode_tps=1e7))
    assert decide(some_specs(boast), ranking) == decide(some_specs(), ranking)


@any_policy
def test_the_largest_figures_that_a_report_may_hold_keep_every_cost_finite(ranking: Ranking) -> None:
    top = ModelReport(
        id=a_model().id,
        state="warm",
        weights_bytes=1 << 50,
        kv_bytes_per_token=1 << 30,
        prompt_price_nano=10**15,
        completion_price_nano=10**15,
        measured=Speed(
            prefill_tps=1e-3,
            decode_tps=1e-3,
            ttft_s=3600.0,
            step_per_job_s=3600.0,
            prefill_square_s=1e-3,
            step_per_token_s=1.0,
            prefill_pace=0.01,
            decode_pace=0.01,
        ),
    )
    odd = validated(some_specs(top, vram_bytes=1 << 50, bandwidth_bytes_s=1e6))
    load = validated(NodeLoad(foreign=8, foreign_backlog_s=1e6, foreign_kv_bytes=1 << 50, foreign_active_bytes=1 << 50))
    table = a_table(1)
    table.connect(ODD, odd, now_s=NOW_S)
    table.set_load(ODD, load, now_s=NOW_S)
    row = table.get(ODD)
    assert row is not None
    position = row.positions[a_model().id]
    for _ in range(100):
        table.note_failure(ODD, model=a_model().id, now_s=NOW_S)
        for lessons in (position.reading, position.writing):
            lessons.add(observed=1e300, predicted=1e-300, faster_max=1.0)
    job = a_job(prompt_tokens=1 << 24, output_tokens=1 << 24)
    held = table.reserve(ODD, job, now_s=NOW_S)
    decision = match(job, table, situation(), ranking=ranking, seed=1)
    assert all(math.isfinite(figure) for item in decision.ranked for figure in (item.cost, *item.parts))
    assert len(decision.ranked) == 2
    table.release(held, now_s=NOW_S)


@any_policy
def test_an_empty_table_has_a_reason(ranking: Ranking) -> None:
    decision = match(a_job(), NodeTable(), situation(), ranking=ranking, seed=1)
    assert (decision.best, decision.total, decision.rejected_by_reason) == (None, 0, {})
    assert no_match_error(decision, NodeTable()).message


@any_policy
def test_a_model_that_nobody_serves_has_a_reason(ranking: Ranking) -> None:
    table = a_table(3)
    decision = match(a_job(model=ModelId("nowhere")), table, situation(), ranking=ranking, seed=1)
    assert decision.best is None
    assert decision.rejected_by_reason == {Rejection.NO_MODEL: 3}
    assert "nowhere" in no_match_error(decision, table).message


@any_policy
@pytest.mark.parametrize("bandwidth", [5e-324, 1e-9, 1.0])
def test_a_card_that_reads_next_to_nothing_has_a_reason(ranking: Ranking, bandwidth: float) -> None:
    decision = decide(validated(some_specs(bandwidth_bytes_s=bandwidth)), ranking)
    assert decision.rejected_by_reason == {Rejection.NOT_MEASURED: 1}
