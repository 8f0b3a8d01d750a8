"""A suspended node gets checks and nothing else, and the funnel says so."""

from __future__ import annotations

from msgspec.structs import replace

from sparewatt.inference.matcher.columns import Standing
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.model import MatchContext, Rejection
from sparewatt.inference.matcher.node_row import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.matcher.trials import match_fairly
from tests.unit.inference.nodes import MODEL, NOW_S, a_job, a_model, node_id, some_specs


def a_table() -> NodeTable:
    table = NodeTable()
    for number in (1, 2):
        table.connect(node_id(number), some_specs(models=(a_model(),)), now_s=NOW_S)
    return table


CONTEXT = MatchContext(now_s=NOW_S, rules=HealthRules())


def test_a_suspended_node_is_rejected_for_jobs_and_found_by_checks() -> None:
    table = a_table()
    table.set_suspended(node_id(1), is_suspended=True)
    decision = match_fairly(a_job(), table, CONTEXT, ranking=BALANCED, seed=1)
    assert [candidate.node_id for candidate in decision.ranked] == [node_id(2)]
    assert decision.rejected_by_reason[Rejection.SUSPENDED] == 1
    checks = replace(CONTEXT, standing=Standing.SUSPENDED)
    found = match_fairly(a_job(), table, checks, ranking=BALANCED, seed=1)
    assert {candidate.node_id for candidate in found.ranked} == {node_id(1), node_id(2)}


def test_its_slots_count_no_more_until_it_is_back() -> None:
    table = a_table()
    before = table.capacity.free(MODEL)
    table.set_suspended(node_id(1), is_suspended=True)
    assert 0 < table.capacity.free(MODEL) < before
    table.set_suspended(node_id(1), is_suspended=False)
    assert table.capacity.free(MODEL) == before
    assert match_fairly(a_job(), table, CONTEXT, ranking=BALANCED, seed=1).ranked_count == 2


def test_with_all_nodes_suspended_no_job_finds_one() -> None:
    table = a_table()
    for number in (1, 2):
        table.set_suspended(node_id(number), is_suspended=True)
    assert match_fairly(a_job(), table, CONTEXT, ranking=BALANCED, seed=1).best is None
