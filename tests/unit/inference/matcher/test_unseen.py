"""Several gateways that see the same nodes free, and not yet each other's jobs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sparewatt.core.ids import MatchId, NodeId
from sparewatt.inference.matcher.formula import BALANCED, NEURALGRID
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.unseen import FOREIGN_PER_S, FOREIGN_S, UnseenTraffic, water_level
from sparewatt.protocol.link.node_report import NodeLoad
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, a_table, node_id, situation, some_specs

NODES = 4


def decide(table: NodeTable, number: int = 0) -> Decision:
    job = a_job(id=MatchId(f"match_{number}"))
    return match(job, table, situation(), ranking=BALANCED, seed=1)


def chosen(table: NodeTable, *, jobs: int = 200) -> Counter[NodeId]:
    found = (decide(table, number).best for number in range(jobs))
    return Counter(best.node_id for best in found if best is not None)


def shared_table(jobs_per_s: float, *, rtt_s: tuple[float, ...] = (0.01,) * NODES) -> NodeTable:
    """Other gateways send so many; the nodes are alike but for the way to them."""
    table = a_table(NODES)
    for number, way_s in enumerate(rtt_s, 1):
        table.set_rtt(node_id(number), way_s, now_s=NOW_S)
    table.unseen.note_own(MODEL, NOW_S)
    if jobs_per_s:
        table.unseen.note_foreign(round(jobs_per_s * FOREIGN_S), NOW_S)
    return table


def test_without_other_gateways_the_best_node_is_always_taken() -> None:
    alone = shared_table(0.0, rtt_s=(1.0, 0.01, 1.0, 1.0))
    assert chosen(alone) == {node_id(2): 200}


def test_beside_busy_gateways_the_jobs_are_drawn_among_nodes_about_as_good() -> None:
    counts = chosen(shared_table(100.0))
    assert len(counts) == NODES
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_node_that_is_much_better_is_taken_all_the_same() -> None:
    far = shared_table(1.0, rtt_s=(5.0, 0.01, 5.0, 5.0))
    assert chosen(far) == {node_id(2): 200}


def test_the_better_of_two_is_drawn_more_often() -> None:
    counts = chosen(shared_table(20.0, rtt_s=(0.4, 0.01, 30.0, 30.0)))
    assert counts[node_id(2)] > counts[node_id(1)] > 0


def test_the_cost_is_still_the_sum_of_its_parts_and_the_lowest_leads() -> None:
    decision = decide(shared_table(50.0))
    costs = [candidate.cost for candidate in decision.ranked]
    assert costs == sorted(costs)
    for candidate in decision.ranked:
        assert candidate.cost == pytest.approx(sum(candidate.parts))


def test_the_same_match_is_drawn_the_same_way() -> None:
    assert decide(shared_table(50.0)).ranked == decide(shared_table(50.0)).ranked


def test_a_ranking_that_scores_draws_nothing() -> None:
    plain, shared = (
        match(a_job(), table, situation(), ranking=NEURALGRID, seed=1)
        for table in (shared_table(0.0), shared_table(50.0))
    )
    assert plain.ranked == shared.ranked


# how much others send


def test_jobs_of_others_are_counted_by_what_nodes_report() -> None:
    table = a_table(1)
    table.unseen.note_own(MODEL, NOW_S)
    for foreign in (1, 0, 1):
        table.set_load(node_id(1), NodeLoad(foreign=foreign), now_s=NOW_S)
    assert table.unseen.rate(MODEL, NOW_S) == pytest.approx(2 / FOREIGN_S)
    assert table.unseen.rate(MODEL, NOW_S + 20 * FOREIGN_S) == pytest.approx(0.0, abs=1e-6)


def test_one_node_cannot_pretend_that_the_whole_world_sends_jobs() -> None:
    table, now_s = a_table(1), NOW_S
    table.unseen.note_own(MODEL, now_s)
    for report in range(200):
        now_s += 0.05
        table.set_load(node_id(1), NodeLoad(foreign=100_000 * (report % 2)), now_s=now_s)
    assert table.unseen.rate(MODEL, now_s) < 2.0 * FOREIGN_PER_S


def test_others_are_taken_to_want_the_same_models() -> None:
    traffic = UnseenTraffic()
    for model in ("a", "a", "a", "b"):
        traffic.note_own(model, NOW_S)
    traffic.note_foreign(8, NOW_S)
    assert traffic.rate("a", NOW_S) == pytest.approx(3 * traffic.rate("b", NOW_S))
    assert traffic.rate("c", NOW_S) == 0.0
    traffic.forget("b")
    assert traffic.rate("b", NOW_S) == 0.0


# the level


def test_all_nodes_that_are_drawn_from_cost_the_same_with_what_is_on_its_way() -> None:
    known, per_share_s = np.array([1.0, 1.2, 1.3, 9.0]), np.array([1.0, 2.0, 0.5, 1.0])
    level, count = water_level(known, per_share_s)
    shares = (level - known[:count]) / per_share_s[:count]
    assert count == 3
    assert shares.sum() == pytest.approx(1.0)
    assert level < known[count]


def test_a_lone_node_gets_them_all() -> None:
    assert water_level(np.array([1.0, 5.0]), np.array([0.5, 0.5])) == (1.5, 1)


def test_a_long_prompt_is_not_sent_to_a_cold_node_for_fear_of_a_collision() -> None:
    """The one that would be late refuses, which costs a round trip, and not the whole prompt."""
    table = shared_table(10.0)
    for number in range(2, NODES + 1):
        table.set_specs(node_id(number), some_specs(a_model(state="on_disk")), now_s=NOW_S)
    jobs = [a_job(id=MatchId(f"match_{n}"), prompt_tokens=7500, prompt_tokens_floor=7500) for n in range(50)]
    found = [match(job, table, situation(), ranking=BALANCED, seed=1).best for job in jobs]
    assert {best.node_id for best in found if best is not None} == {node_id(1)}
