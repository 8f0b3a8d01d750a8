from __future__ import annotations

import pytest

from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.money import NANO_PER_USD, token_cost
from sparewatt.inference.matcher.formula import (
    BALANCED,
    ECONOMY,
    FAST,
    JITTER,
    NEURALGRID,
    PARTS,
    RANKINGS,
    SUSPECT_S,
    Ranking,
)
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, REJECTIONS_KEPT, Candidate, Decision, MatchJob, Rejection
from sparewatt.inference.matcher.node_row import PREFILL_PACE, STEP_PER_JOB_SHARE, NodeRow
from sparewatt.inference.matcher.scan import neuralgrid_parts
from sparewatt.protocol.link.node_report import NodeLoad, NodeSpecs, Speed
from tests.unit.inference.nodes import (
    GIB,
    MODEL,
    NOW_S,
    a_job,
    a_model,
    a_position,
    a_row,
    a_table,
    node_id,
    situation,
    some_specs,
    table_of,
)


def decide(
    *rows: NodeRow,
    job: MatchJob | None = None,
    ranking: Ranking = BALANCED,
    seed: int = 1,
    tried: frozenset[str] = frozenset(),
) -> Decision:
    return match(job or a_job(), table_of(*rows), situation(tried=tried), ranking=ranking, seed=seed)


def only(row: NodeRow, *, job: MatchJob | None = None, ranking: Ranking = BALANCED, seed: int = 1) -> Candidate:
    (found,) = decide(row, job=job, ranking=ranking, seed=seed).ranked
    return found


def parts_of(row: NodeRow, *, job: MatchJob | None = None, ranking: Ranking = BALANCED) -> dict[str, float]:
    return dict(zip((*ranking.part_names, "jitter"), only(row, job=job, ranking=ranking).parts, strict=True))


# what the parts are


def test_the_cost_is_the_sum_of_its_named_parts_and_the_jitter() -> None:
    found, parts = only(a_row()), parts_of(a_row())
    step_s = 1 / 50 + 600 * 100_000 / (8 * GIB * 50)
    assert parts["network"] == 0.02
    assert parts["prefill"] == pytest.approx(0.1 + 500 / 1000)
    assert parts["decode"] == pytest.approx(200 * step_s)
    assert parts["price"] == pytest.approx(0.22)
    odds = 0.4 / 19.6
    assert parts["flakiness"] == pytest.approx(odds * (1 + (0.02 + 0.6 + 200 * step_s + 0.22) / 2))
    assert {name for name, part in parts.items() if part == 0.0} == {
        "queue",
        "cold_load",
        "memory",
        "others",
        "suspect",
    }
    assert found.cost == pytest.approx(sum(parts.values()))


def test_jitter_is_at_most_a_twentieth_and_a_hash_of_seed_match_and_node() -> None:
    table = a_table(1)
    seen = set()
    for seed in range(50):
        best = match(a_job(), table, situation(), ranking=BALANCED, seed=seed).best
        assert best is not None
        seen.add(best.parts[-1] / sum(best.parts[:-1]))
    assert len(seen) == 50
    assert 0.0 <= min(seen) < 0.02 * JITTER * 10
    assert 0.8 * JITTER < max(seen) < JITTER
    assert only(a_row(), seed=3) == only(a_row(), seed=3)
    assert only(a_row(), job=a_job(id=MatchId("other"))).parts[-1] != only(a_row()).parts[-1]
    assert only(a_row(2)).parts[-1] != only(a_row(1)).parts[-1]


def test_a_suspect_node_is_used_only_if_nobody_else_can() -> None:
    slow = Speed(prefill_tps=200.0, decode_tps=10.0)
    suspect = a_row(1, suspect_until_s=NOW_S + 10)
    steady = a_row(2, specs=some_specs(a_model(measured=slow)))
    assert parts_of(suspect)["suspect"] == SUSPECT_S
    assert [c.node_id for c in decide(suspect, steady).ranked] == [steady.id, suspect.id]
    assert [c.node_id for c in decide(suspect).ranked] == [suspect.id]


@pytest.mark.parametrize("ranking", RANKINGS.values(), ids=list(RANKINGS))
def test_predictions_are_first_token_and_finish_whatever_the_policy_ranks_by(ranking: Ranking) -> None:
    best = only(a_row(), ranking=ranking)
    assert best.predicted_ttft_s == pytest.approx(0.02 + 0.6)
    assert best.predicted_finish_s == pytest.approx(0.02 + 0.6 + 4.0, abs=0.05)
    assert best.price_nano == 22_000


@pytest.mark.parametrize("nano", [1, 333_333_333, 20_000_000, 70_000_000, 999_999_999_999])
@pytest.mark.parametrize("tokens", [1, 3, 700, 4_097, 131_072])
def test_the_price_is_what_the_books_would_say(nano: int, tokens: int) -> None:
    specs = some_specs(a_model(prompt_price_nano=nano, completion_price_nano=3 * nano, context_length=None))
    job = a_job(prompt_tokens=tokens, output_tokens=2 * tokens)
    assert only(a_row(specs=specs), job=job).price_nano == token_cost(
        prompt_tokens=tokens, completion_tokens=2 * tokens, prompt_price=nano, completion_price=3 * nano
    )


def test_waiting_for_the_warm_node_or_loading_it_cold_elsewhere_is_decided_by_seconds() -> None:
    cold = a_row(2, specs=some_specs(a_model(state="on_disk")))
    short, long = (a_row(1, own_unread_s=unread_s, own_read_from_s=NOW_S) for unread_s in (3.0, 60.0))
    assert [c.node_id for c in decide(short, cold).ranked] == [node_id(1), node_id(2)]
    assert [c.node_id for c in decide(long, cold).ranked] == [node_id(2), node_id(1)]
    loading = a_row(2, specs=some_specs(a_model(state="loading", weights_bytes=30 * GIB), vram_bytes=80 * GIB))
    assert parts_of(loading)["cold_load"] < parts_of(cold)["cold_load"]


def test_more_memory_for_context_helps_until_the_job_fits() -> None:
    def memory(capacity_bytes: int | None) -> float:
        return parts_of(a_row(load=NodeLoad(kv_capacity_bytes=capacity_bytes)))["memory"]

    need = 700 * 100_000
    assert memory(0) > memory(need // 2) > memory(need) == memory(10**13) == memory(None) == 0.0


def test_a_prompt_behind_two_others_is_predicted_to_wait_for_exactly_those() -> None:
    """Prompts are read in the order of arrival, and the first of them is being read meanwhile."""
    speed = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.1, prefill_square_s=1e-7, prefill_pace=0.8)
    table = a_table(1, some_specs(a_model(measured=speed)))
    lengths = (300, 1200)
    for tokens in lengths:
        table.reserve(node_id(1), a_job(prompt_tokens=tokens), now_s=NOW_S)
    ahead_s, own_s = sum(map(speed.prefill_s, lengths)) / 0.8, speed.prefill_s(500) / 0.8
    for passed_s in (0.0, 0.5):
        best = match(a_job(), table, situation(now_s=NOW_S + passed_s), ranking=BALANCED, seed=1).best
        assert best is not None
        assert best.predicted_ttft_s == pytest.approx(ahead_s - passed_s + own_s)


def test_what_others_sent_is_read_in_the_time_that_the_node_reported() -> None:
    table = a_table(1)
    table.set_load(node_id(1), NodeLoad(foreign=1, foreign_backlog_s=2.0), now_s=NOW_S)
    waits = []
    for passed_s in (0.0, 1.0, 9.0):
        best = match(a_job(), table, situation(now_s=NOW_S + passed_s), ranking=BALANCED, seed=1).best
        assert best is not None
        waits.append(best.parts[PARTS.index("queue")])
    slower = 1 / PREFILL_PACE
    assert waits == pytest.approx([2.0 * slower, 2.0 * slower - 1.0, 0.0])


def test_a_job_beyond_the_slots_waits_for_an_answer_to_end() -> None:
    def queue_s(jobs: int) -> float:
        return parts_of(a_row(specs=some_specs(slots=4), own_jobs=jobs, positions={MODEL: a_position()}))["queue"]

    assert queue_s(3) == 0.0
    first, second = queue_s(4), queue_s(5)
    assert first == pytest.approx(256 * (1 / 50 + 4 * STEP_PER_JOB_SHARE / 50) / 4)
    assert second == pytest.approx(2 * 256 * (1 / 50 + 5 * STEP_PER_JOB_SHARE / 50) / 4)


# tiers


def priced(number: int, *, usd_per_mtok: int, decode_tps: float = 50.0) -> NodeRow:
    price = usd_per_mtok * NANO_PER_USD
    speed = Speed(prefill_tps=1000.0, decode_tps=decode_tps, ttft_s=0.1)
    return a_row(
        number, specs=some_specs(a_model(prompt_price_nano=price, completion_price_nano=price, measured=speed))
    )


def test_a_dollar_is_worth_nothing_when_fast_and_most_to_the_economical() -> None:
    dear = priced(1, usd_per_mtok=2)
    assert parts_of(dear, ranking=FAST)["price"] == 0.0
    assert parts_of(dear, ranking=BALANCED)["price"] == pytest.approx(1e4 * 700 * 2e-6)
    assert parts_of(dear, ranking=ECONOMY)["price"] == pytest.approx(4 * 1e4 * 700 * 2e-6)


def test_the_dearer_node_loses_more_the_more_economical_the_tier() -> None:
    dear, cheap = priced(1, usd_per_mtok=2), priced(2, usd_per_mtok=1)

    def disadvantage(ranking: Ranking) -> float:
        return sum(only(dear, ranking=ranking).parts[:-1]) - sum(only(cheap, ranking=ranking).parts[:-1])

    assert disadvantage(FAST) == 0.0
    assert 0.0 < disadvantage(BALANCED) < disadvantage(ECONOMY)


def test_the_tiers_choose_between_speed_and_price() -> None:
    swift, cheap = priced(1, usd_per_mtok=5, decode_tps=100.0), priced(2, usd_per_mtok=1, decode_tps=4.0)
    best = {
        ranking.name: decide(swift, cheap, ranking=ranking).ranked[0].node_id for ranking in (FAST, BALANCED, ECONOMY)
    }
    assert best == {"fast": swift.id, "balanced": swift.id, "economy": cheap.id}


# neuralgrid


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


def neuralgrid_score(job: MatchJob, specs: NodeSpecs, *, connected: bool = True) -> float:
    entries = table_of(a_row(specs=specs, connected=connected)).columns_of(MODEL)
    assert entries is not None
    vram, compute, cost = neuralgrid_parts(job, entries.by_field)
    return float((vram + compute + cost)[0])


@pytest.mark.parametrize("status", ["online", "offline"])
@pytest.mark.parametrize("vram_bytes", [24 * GIB, 8 * GIB, 8 * GIB + 70_000_000, 8 * GIB + 69_999_999, 80 * GIB, 0])
@pytest.mark.parametrize(("tflops", "hourly_nano"), [(82.6, 300_000_000), (0.0, 0), (312.0, 2_490_000_000)])
def test_neuralgrid_is_the_published_formula_to_the_bit(
    status: str, vram_bytes: int, tflops: float, hourly_nano: int
) -> None:
    expected = transcribed_score(
        status=status,
        vram_gb=vram_bytes / GIB,
        min_vram=(8 * GIB + 700 * 100_000) / GIB,
        tflops=tflops,
        hourly_rate=hourly_nano / NANO_PER_USD,
    )
    specs = some_specs(vram_bytes=vram_bytes, tflops=tflops, hourly_price_nano=hourly_nano)
    assert neuralgrid_score(a_job(), specs, connected=status == "online") == expected


def test_neuralgrid_is_minus_one_when_offline_or_too_small() -> None:
    assert neuralgrid_score(a_job(), some_specs(), connected=False) == -1
    assert neuralgrid_score(a_job(), some_specs(vram_bytes=8 * GIB)) == -1
    assert neuralgrid_score(a_job(), some_specs(vram_bytes=9 * GIB)) > 0


def test_neuralgrid_ranks_by_its_score_without_jitter() -> None:
    best = only(a_row(), ranking=NEURALGRID)
    assert best.cost == -neuralgrid_score(a_job(), some_specs())
    assert best.parts[-1] == 0.0


def test_neuralgrid_prefers_the_biggest_card_and_balanced_does_not() -> None:
    fast = a_model(measured=Speed(prefill_tps=5000, decode_tps=100))
    big = a_row(1, specs=some_specs(vram_bytes=80 * GIB), rtt_s=0.5)
    fit = a_row(2, specs=some_specs(fast, vram_bytes=12 * GIB), rtt_s=0.0)
    assert [c.node_id for c in decide(big, fit, ranking=NEURALGRID).ranked] == [big.id, fit.id]
    assert [c.node_id for c in decide(big, fit).ranked] == [fit.id, big.id]


def test_the_shipped_policies_are_there_by_name() -> None:
    assert {"fast", "balanced", "economy", "neuralgrid"} <= set(RANKINGS)
    assert all(RANKINGS[name].name == name for name in RANKINGS)


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
    ranked = decide(*rows, ranking=NEURALGRID).ranked
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
    table = a_table(4)
    for number in range(8):
        job = a_job(id=MatchId(f"match_{number}"))
        best = match(job, table, situation(), ranking=BALANCED, seed=1).best
        assert best is not None
        table.reserve(best.node_id, job, now_s=NOW_S)
    assert {row.own_jobs for row in table} == {2}


def test_a_decision_keeps_the_best_few_and_counts_all() -> None:
    rows = [a_row(n) for n in range(1, 31)]
    decision = decide(*rows)
    assert decision.total == 30
    assert len(decision.ranked) == CANDIDATES_KEPT
    assert decision.rejected_by_reason == {}


def test_nodes_without_the_model_are_counted_and_those_that_have_it_are_named() -> None:
    elsewhere = some_specs(a_model(id="another"))
    rows = [a_row(n, specs=elsewhere) for n in range(1, 101)] + [a_row(200, connected=False)]
    decision = decide(*rows)
    assert [item.node_id for item in decision.rejected] == [node_id(200)]
    assert decision.rejected_by_reason == {Rejection.NO_MODEL: 100, Rejection.OFFLINE: 1}


def test_rejections_are_bounded_and_the_same_in_any_order() -> None:
    rows = [a_row(n, connected=n % 3 == 0, load=NodeLoad(draining=True)) for n in range(1, 301)]
    decision = decide(*rows)
    assert len(decision.rejected) == REJECTIONS_KEPT
    assert decision.rejected_by_reason == {Rejection.OFFLINE: 200, Rejection.DRAINING: 100}
    assert decide(*reversed(rows)) == decision


def test_an_empty_table_and_an_unknown_model_have_no_best() -> None:
    assert decide().best is None
    assert decide(a_row(), job=a_job(model=ModelId("unknown"))).best is None


def test_the_same_arguments_give_the_same_decision() -> None:
    rows = [a_row(n) for n in range(1, 6)]
    assert decide(*rows, seed=3) == decide(*rows, seed=3)
    assert any(decide(*rows, seed=s).best != decide(*rows, seed=3).best for s in range(20))
