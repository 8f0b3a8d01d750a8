"""Compiled or with numpy: the same best, the same reasons."""

from __future__ import annotations

import numpy as np
import pytest

from sparewatt.core.ids import AccountId, MatchId
from sparewatt.inference.matcher import kernel, library
from sparewatt.inference.matcher.columns import NO_POSITIONS, ColumnField, NodeColumns
from sparewatt.inference.matcher.formula import BALANCED, ECONOMY, FAST, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import AllowedNodes, Rejection
from sparewatt.inference.matcher.scan import MatchQuery
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.policy.parser import read_line
from sparewatt.testing.matcher_timing import MODEL, make_table
from tests.unit.inference.fleets import a_fleet, allowed_by, assert_adds_up
from tests.unit.inference.nodes import a_job, a_model, a_table, node_id, situation, some_specs
from tests.unit.inference.scans import compare_scans

TABLES = 100


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    if not library.path_of(library.own_platform()).exists():
        pytest.skip("the package has no compiled scan for this platform")
    assert kernel.ready(), "the matcher was changed: run `make scan`"


def test_both_scans_agree_on_random_tables() -> None:
    chance = np.random.default_rng(7)
    ranked = [compare_scans(chance) for _ in range(TABLES)]
    assert sum(n > 0 for n in ranked) > TABLES // 2


@pytest.mark.parametrize("differing_bits", [0, 63, 64, 127, 128, 156])
def test_ties_are_broken_by_the_whole_id(differing_bits: int) -> None:
    entries = NodeColumns()
    for number in (3, 1, 2, 0):
        entries.add(node_id(number << differing_bits), 5, number)
    for field in (ColumnField.HEARD_IF_OPEN_S, ColumnField.CONTEXT_TOKENS, ColumnField.FITS_TOKENS):
        entries.write_column(field, np.ones(4))
    found = kernel.rank(MatchQuery(1.0, 0.0), entries, NO_POSITIONS, NO_POSITIONS, k=8).positions.tolist()
    assert [entries.nodes[place] for place in found] == [node_id(n << differing_bits) for n in range(4)]


@pytest.fixture(scope="module")
def many() -> NodeTable:
    return make_table(12_000)


@pytest.mark.parametrize("policy", [FAST, BALANCED, ECONOMY], ids=lambda policy: policy.name)
@pytest.mark.parametrize("prompt_tokens", [20, 20_000])
def test_a_decision_by_shortlist_is_the_same_both_ways(many: NodeTable, policy: Ranking, prompt_tokens: int) -> None:
    job = a_job(id=MatchId("m"), model=MODEL, prompt_tokens=prompt_tokens)
    both = []
    for compiled in (True, False):
        many.shortlists_of(MODEL).clear()
        both.append(match(job, many, situation(now_s=1.0), ranking=policy, seed=3, compiled=compiled))
    assert both[0] == both[1]
    assert len(both[0].ranked) == 8


@pytest.mark.parametrize("count", [30, 700])
@pytest.mark.parametrize("line", ["region=EU", "max_price<=0.09", "ignore=acc_bob warm=require", "gpu_count>=1"])
def test_a_decision_under_a_policy_is_the_same_both_ways(count: int, line: str) -> None:
    table = a_fleet(range(count))
    at = situation(allowed=allowed_by(table, read_line(line)), payer_nodes=table.nodes_of(AccountId("acc_ann")))
    both = [match(a_job(), table, at, ranking=BALANCED, seed=3, compiled=compiled) for compiled in (True, False)]
    assert both[0] == both[1]
    assert both[0].rejected_by_policy
    assert_adds_up(both[0], kept=8)


@pytest.mark.parametrize("left_out", [10, 11_980])
def test_a_shortlist_under_a_policy_is_the_same_both_ways(many: NodeTable, left_out: int) -> None:
    nodes = [row.id for row in many]
    left = nodes[left_out:]
    at = situation(now_s=1.0, allowed=AllowedNodes(frozenset(left), {"region": len(nodes) - len(left)}))
    both = []
    for compiled in (True, False):
        many.shortlists_of(MODEL).clear()
        both.append(match(a_job(model=MODEL), many, at, ranking=BALANCED, seed=3, compiled=compiled))
    assert both[0] == both[1]
    assert {candidate.node_id for candidate in both[0].ranked} <= set(left)
    assert_adds_up(both[0], kept=8)
    assert (Rejection.NOT_SHORTLISTED in both[0].rejected_by_reason) == (left_out == 10)


def test_a_decision_by_what_nodes_hold_is_the_same_both_ways() -> None:
    table = a_table(12, some_specs(a_model(prefix_cache_tokens=100_000)))
    at = situation(prefix_tokens={node_id(n): 512 * n for n in range(1, 7)})
    job = a_job(prompt_tokens=4000, output_tokens=100)
    one, other = (match(job, table, at, ranking=BALANCED, seed=3, compiled=compiled) for compiled in (False, True))
    assert one == other
