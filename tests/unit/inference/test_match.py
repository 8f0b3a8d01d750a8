from __future__ import annotations

import hashlib

import pytest

from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.limits import CANDIDATES_KEPT, REJECTIONS_KEPT
from sparewatt.inference.matcher.match import hash_fraction, match
from sparewatt.inference.matcher.model import Decision, MatchJob, NodeRow, Rejection
from sparewatt.inference.matcher.policies import (
    BALANCED,
    NEURALGRID,
    POLICIES,
    Policy,
    balanced_parts,
    neuralgrid_parts,
    neuralgrid_terms,
)
from sparewatt.inference.matcher.terms import SUSPECT_S
from sparewatt.protocol.node import Speed
from tests.unit.inference.nodes import GIB, NOW_S, a_job, a_model, a_row, node_id, situation, some_specs


def decide(
    *rows: NodeRow,
    job: MatchJob | None = None,
    policy: Policy = BALANCED,
    seed: int = 1,
    tried: frozenset[str] = frozenset(),
) -> Decision:
    return match(job or a_job(), rows, situation(tried=tried), policy=policy, seed=seed)


def transcribed_score(*, status: str, vram_gb: float, min_vram: float, tflops: float, hourly_rate: float) -> float:
    """NeuralGrid's scoreNode, line by line."""
    if status != "online":
        return -1
    if vram_gb < min_vram:
        return -1
    vram_score = vram_gb / min_vram
    compute_score = tflops / 100
    cost_score = 1 / (hourly_rate + 0.01)
    return (vram_score * 0.3) + (compute_score * 0.5) + (cost_score * 0.2)


# balanced


def test_balanced_is_the_sum_of_its_named_parts_and_the_jitter() -> None:
    best = decide(a_row()).best
    assert best is not None
    parts = dict(zip((*BALANCED.part_names, "jitter"), best.parts, strict=True))
    assert parts["network"] == 0.02
    assert parts["decode"] == pytest.approx(4.0)
    assert parts["prefill"] == pytest.approx(0.5)
    assert parts["price"] == pytest.approx(0.22)
    assert parts["queue"] == parts["cold_load"] == parts["suspect"] == 0.0
    assert best.cost == pytest.approx(sum(best.parts))


def test_jitter_is_at_most_a_fifth_and_a_hash_anyone_can_recompute() -> None:
    best = decide(a_row(), seed=42).best
    assert best is not None
    digest = hashlib.blake2b(f"42|match_test|{node_id(1)}".encode(), digest_size=8).digest()
    fraction = (int.from_bytes(digest, "big") >> 11) / 2**53
    assert hash_fraction(42, MatchId("match_test"), node_id(1)) == fraction
    assert 0 <= fraction < 1
    assert best.parts[-1] == pytest.approx(0.2 * fraction * sum(best.parts[:-1]))


def test_jitter_differs_by_seed_match_and_node() -> None:
    first = hash_fraction(1, MatchId("m"), node_id(1))
    others = {
        hash_fraction(2, MatchId("m"), node_id(1)),
        hash_fraction(1, MatchId("n"), node_id(1)),
        hash_fraction(1, MatchId("m"), node_id(2)),
    }
    assert len(others) == 3
    assert first not in others


def test_a_suspect_node_is_used_only_if_nobody_else_can() -> None:
    slow = Speed(prefill_tps=200.0, decode_tps=10.0)
    suspect = a_row(1, suspect_until_s=NOW_S + 10)
    steady = a_row(2, specs=some_specs(a_model(measured=slow)))
    assert balanced_parts(a_job(), suspect, situation())[-1] == SUSPECT_S
    assert [c.node_id for c in decide(suspect, steady).ranked] == [steady.id, suspect.id]
    assert [c.node_id for c in decide(suspect).ranked] == [suspect.id]


def test_predictions_are_first_token_and_finish() -> None:
    best = decide(a_row()).best
    assert best is not None
    assert best.predicted_ttft_s == pytest.approx(0.02 + 0.5)
    assert best.predicted_finish_s == pytest.approx(0.02 + 0.5 + 4.0)
    assert best.price_nano == 22_000


# neuralgrid

CASES = [
    ("online", 24.0, 8.0, 82.6, 0.30),
    ("online", 8.0, 8.0, 0.0, 0.0),
    ("online", 80.0, 0.5, 312.0, 2.49),
    ("online", 7.999, 8.0, 82.6, 0.30),
    ("offline", 80.0, 8.0, 312.0, 0.0),
]


@pytest.mark.parametrize(("status", "vram_gb", "min_vram", "tflops", "hourly_rate"), CASES)
def test_neuralgrid_is_the_published_formula(
    status: str, vram_gb: float, min_vram: float, tflops: float, hourly_rate: float
) -> None:
    expected = transcribed_score(
        status=status, vram_gb=vram_gb, min_vram=min_vram, tflops=tflops, hourly_rate=hourly_rate
    )
    found = neuralgrid_terms(
        online=status == "online", vram_gb=vram_gb, min_vram_gb=min_vram, tflops=tflops, hourly_rate=hourly_rate
    )
    assert sum(found) == expected


def test_neuralgrid_is_minus_one_when_offline_or_too_small() -> None:
    assert sum(neuralgrid_terms(online=False, vram_gb=80, min_vram_gb=8, tflops=1, hourly_rate=0)) == -1
    assert sum(neuralgrid_terms(online=True, vram_gb=7, min_vram_gb=8, tflops=1, hourly_rate=0)) == -1
    assert sum(neuralgrid_terms(online=True, vram_gb=8, min_vram_gb=8, tflops=1, hourly_rate=0)) > 0


def test_neuralgrid_reads_a_node_in_gib_dollars_and_claimed_tflops() -> None:
    job, row = a_job(), a_row()
    expected = transcribed_score(
        status="online",
        vram_gb=24.0,
        min_vram=(8 * GIB + 700 * 100_000) / GIB,
        tflops=82.0,
        hourly_rate=0.3,
    )
    assert sum(neuralgrid_parts(job, row, situation())) == pytest.approx(expected)
    best = decide(row, policy=NEURALGRID).best
    assert best is not None
    assert best.cost == pytest.approx(-expected)
    assert best.parts[-1] == 0.0


def test_neuralgrid_scores_an_offline_row_minus_one() -> None:
    assert sum(neuralgrid_parts(a_job(), a_row(connected=False), situation())) == -1


def test_neuralgrid_prefers_the_biggest_card_and_balanced_does_not() -> None:
    big = a_row(1, specs=some_specs(vram_bytes=80 * GIB), rtt_s=0.5)
    fit = a_row(2, specs=some_specs(vram_bytes=12 * GIB), rtt_s=0.0)
    fast = Speed(prefill_tps=5000, decode_tps=100)
    fit.models = {a_model().id: a_model(measured=fast)}
    assert [c.node_id for c in decide(big, fit, policy=NEURALGRID).ranked] == [big.id, fit.id]
    assert [c.node_id for c in decide(big, fit).ranked] == [fit.id, big.id]


def test_there_are_two_policies_and_balanced_comes_first() -> None:
    assert list(POLICIES) == ["balanced", "neuralgrid"]


# ranking


def test_the_lowest_cost_ranks_first() -> None:
    speeds = {1: 10.0, 2: 100.0, 3: 30.0}
    rows = [
        a_row(n, specs=some_specs(a_model(measured=Speed(prefill_tps=1000, decode_tps=tps))))
        for n, tps in speeds.items()
    ]
    ranked = decide(*rows).ranked
    assert [c.node_id for c in ranked] == [node_id(2), node_id(3), node_id(1)]
    assert list(ranked) == sorted(ranked, key=lambda c: c.cost)


def test_equal_costs_are_ordered_by_node_id() -> None:
    rows = [a_row(n) for n in (3, 1, 2)]
    ranked = decide(*rows, policy=NEURALGRID).ranked
    assert len({c.cost for c in ranked}) == 1
    assert [c.node_id for c in ranked] == [node_id(1), node_id(2), node_id(3)]


def test_the_cascade_is_the_same_ranking_without_the_nodes_tried() -> None:
    rows = [a_row(n) for n in range(1, 6)]
    order = [c.node_id for c in decide(*rows).ranked]
    walked: list[str] = []
    for _ in order:
        best = decide(*rows, tried=frozenset(walked)).best
        assert best is not None
        walked.append(best.node_id)
    assert walked == order
    assert decide(*rows, tried=frozenset(walked)).best is None


def test_a_burst_spreads_because_each_pick_is_counted_at_once() -> None:
    rows = [a_row(n) for n in range(1, 5)]
    for number in range(8):
        best = decide(*rows, job=a_job(id=MatchId(f"match_{number}"))).best
        assert best is not None
        row = next(row for row in rows if row.id == best.node_id)
        row.own_jobs, row.own_prompt_tokens, row.own_output_tokens = (
            row.own_jobs + 1,
            row.own_prompt_tokens + 500,
            row.own_output_tokens + 200,
        )
    assert {row.own_jobs for row in rows} == {2}


def test_a_decision_keeps_the_best_few_and_counts_all() -> None:
    rows = [a_row(n) for n in range(1, 31)]
    decision = decide(*rows)
    assert decision.total == 30
    assert len(decision.ranked) == CANDIDATES_KEPT
    assert decision.dropped == {}


def test_rejections_are_bounded_and_those_that_serve_the_model_come_first() -> None:
    elsewhere = some_specs(a_model(id="another"))
    rows = [a_row(n, specs=elsewhere) for n in range(1, 101)] + [a_row(200, connected=False)]
    decision = decide(*rows)
    assert len(decision.rejected) == REJECTIONS_KEPT
    assert decision.rejected[0].node_id == node_id(200)
    assert decision.dropped == {Rejection.NO_MODEL: 100, Rejection.OFFLINE: 1}


def test_an_empty_table_and_an_unknown_model_have_no_best() -> None:
    assert decide().best is None
    assert decide(a_row(), job=a_job(model=ModelId("unknown"))).best is None


def test_the_same_arguments_give_the_same_decision() -> None:
    rows = [a_row(n) for n in range(1, 6)]
    assert decide(*rows, seed=3) == decide(*rows, seed=3)
    assert any(decide(*rows, seed=s).best != decide(*rows, seed=3).best for s in range(20))
