"""Prefix affinity over random tables: holding never hurts the holder, and holding nothing changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.prefix_index import PrefixIndex
from sparewatt.inference.matcher.formula import BALANCED, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import Decision, MatchJob
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.prompt import BLOCK_TOKENS
from tests.property.test_matcher import by_seconds, changed, few_jobs, place, preferences, rankings, rivals, tables
from tests.unit.inference.nodes import NOW_S, node_id, situation, table_of

HOLDER = node_id(1)
holdings = st.dictionaries(st.integers(1, 6).map(node_id), st.integers(0, 1 << 25))
nobody: st.SearchStrategy[dict[NodeId, int] | None] = st.sampled_from([None, {}])


def decide(job: MatchJob, nodes: Any, held: dict[NodeId, int] | None, ranking: Ranking = BALANCED) -> Decision:
    return match(job, table_of(*nodes), situation(prefix_tokens=held), ranking=ranking, seed=5)


def keeping(row: NodeRow, tokens: int) -> NodeRow:
    return changed(row, model={"prefix_cache_tokens": tokens, "state": "warm"})


@given(nodes=rivals, job=few_jobs, preference=preferences, tokens=st.integers(0, 5000), more=st.integers(0, 5000),
       keeps=st.integers(0, 5000), ranking=by_seconds)  # fmt: skip
def test_holding_more_never_hurts_the_holder(  # noqa: PLR0917
    nodes: tuple[NodeRow, ...], job: MatchJob, preference: Any, tokens: int, more: int, keeps: int, ranking: Ranking
) -> None:
    wish = msgspec.structs.replace(job, preference=preference)
    all_nodes = (keeping(nodes[0], keeps), *nodes[1:])
    before, after = (decide(wish, all_nodes, {HOLDER: held}, ranking) for held in (tokens, tokens + more))
    assert place(after, HOLDER) <= place(before, HOLDER)
    one, other = before.ranked[place(before, HOLDER)], after.ranked[place(after, HOLDER)]
    assert other.cost <= one.cost
    assert other.predicted_ttft_s <= one.predicted_ttft_s
    assert other.price_nano == one.price_nano


@given(nodes=rivals, job=few_jobs, held=holdings, ranking=rankings)
def test_a_node_without_a_cache_gets_no_discount(
    nodes: tuple[NodeRow, ...], job: MatchJob, held: dict[NodeId, int], ranking: Ranking
) -> None:
    plain = [changed(row, model={"prefix_cache_tokens": 0}) for row in nodes]
    assert decide(job, plain, held, ranking) == decide(job, plain, None, ranking)


@given(nodes=tables, job=few_jobs, held=nobody, ranking=rankings)
def test_without_a_holder_the_decision_is_the_same_to_the_bit(
    nodes: tuple[NodeRow, ...], job: MatchJob, held: dict[NodeId, int] | None, ranking: Ranking
) -> None:
    assert decide(job, nodes, held, ranking) == decide(job, nodes, None, ranking)


@given(nodes=rivals, job=few_jobs, held=holdings, ranking=rankings, data=st.data())
def test_neither_the_order_of_nodes_nor_of_holders_matters(
    nodes: tuple[NodeRow, ...], job: MatchJob, held: dict[NodeId, int], ranking: Ranking, data: st.DataObject
) -> None:
    all_nodes = [keeping(row, 4000) for row in nodes]
    shuffled = data.draw(st.permutations(all_nodes))
    again = dict(data.draw(st.permutations(list(held.items()))))
    assert decide(job, shuffled, again, ranking) == decide(job, all_nodes, held, ranking)


notes = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.integers(0, 20), max_size=8), st.integers(0, 10), st.booleans()),
    max_size=40,
)


@given(notes=notes, blocks_max=st.integers(1, 20))
def test_memory_stays_within_its_bounds(notes: list[tuple[int, list[int], int, bool]], blocks_max: int) -> None:
    memory = PrefixIndex(blocks_max=blocks_max)
    for number, chain, keeps, leaves in notes:
        memory.add(node_id(number), "m", chain, capacity_tokens=keeps * BLOCK_TOKENS, now_s=NOW_S)
        if leaves:
            memory.forget(node_id(number))
        assert len(memory) == sum(map(len, memory._cached.values())) <= blocks_max
        remembered = {(block, node) for (node, _), kept in memory._cached.items() for block in kept}
        assert {(block, node) for block, nodes in memory._readers.items() for node in nodes} <= remembered
        assert all(memory._readers.values())
