"""A node that holds the beginning of a prompt has less to read, and nothing else changes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from sparewatt.core.ids import NodeId
from sparewatt.inference.matcher import match as matching
from sparewatt.inference.matcher.affinity import cached_tokens
from sparewatt.inference.matcher.explain import describe
from sparewatt.inference.matcher.formula import BALANCED, NEURALGRID, PARTS, Ranking
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import CANDIDATES_KEPT, AllowedNodes, Candidate, Decision, MatchJob
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.prompt import PREFIX_HOLDERS_MAX
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import MODEL, NOW_S, SPEED, a_job, a_model, a_table, node_id, situation, some_specs

KEEPS = 100_000
LONG = a_job(prompt_tokens=4000, output_tokens=100)
KEEPING = some_specs(a_model(prefix_cache_tokens=KEEPS))


def decide(
    table: NodeTable, held: dict[NodeId, int] | None, job: MatchJob = LONG, ranking: Ranking = BALANCED, **at: Any
) -> Decision:
    return match(job, table, situation(prefix_tokens=held, **at), ranking=ranking, seed=5)


def of(decision: Decision, number: int) -> Candidate:
    return next(candidate for candidate in decision.ranked if candidate.node_id == node_id(number))


def part(candidate: Candidate, name: str) -> float:
    return candidate.parts[PARTS.index(name)]


def test_a_holder_reads_only_the_rest() -> None:
    table = a_table(3, KEEPING)
    without, having = of(decide(table, None), 2), of(decide(table, {node_id(2): 3000}), 2)
    saved_s = 3000 / SPEED.prefill_tps
    assert part(without, "prefill") - part(having, "prefill") == pytest.approx(saved_s)
    assert without.predicted_ttft_s - having.predicted_ttft_s == pytest.approx(saved_s)
    assert (without.cached_tokens, having.cached_tokens) == (0, 3000)


def test_context_memory_and_price_stay_those_of_the_whole_prompt() -> None:
    table = a_table(2, KEEPING)
    table.set_load(node_id(1), NodeLoad(foreign=1, kv_capacity_bytes=1), now_s=NOW_S)
    without, having = of(decide(table, None), 1), of(decide(table, {node_id(1): 3000}), 1)
    for name in ("network", "queue", "cold_load", "memory", "decode", "price", "suspect"):
        assert part(having, name) == part(without, name)
    assert having.price_nano == without.price_nano
    assert part(having, "others") < part(without, "others")


def test_a_slower_node_wins_if_it_holds_the_prompt_and_loses_if_it_does_not() -> None:
    slow = some_specs(a_model(prefix_cache_tokens=KEEPS, measured=Speed(500.0, 50.0, 0.1)))
    table = a_table(3, KEEPING)
    table.set_specs(node_id(3), slow)
    assert decide(table, None).ranked[-1].node_id == node_id(3)
    best = decide(table, {node_id(3): 3584}).best
    assert best is not None
    assert best.node_id == node_id(3)


def test_a_crowded_holder_is_left_alone() -> None:
    table = a_table(3, KEEPING)
    table.set_load(node_id(2), NodeLoad(foreign=20, foreign_backlog_s=60.0), now_s=NOW_S)
    best = decide(table, {node_id(2): 3584}).best
    assert best is not None
    assert best.node_id != node_id(2)


def test_a_node_that_reports_no_cache_gets_no_discount() -> None:
    table = a_table(3)
    assert decide(table, {node_id(1): 3000}) == decide(table, None)


def test_nobody_gets_more_than_it_says_it_keeps_nor_the_whole_prompt() -> None:
    table = a_table(2, KEEPING)
    table.set_specs(node_id(2), some_specs(a_model(prefix_cache_tokens=1000)))
    held = {node_id(1): 8000, node_id(2): 3000, node_id(99): 3000}
    assert cached_tokens(LONG, held, table) == {node_id(1): 3999, node_id(2): 1000}


@pytest.mark.parametrize("state", ["loading", "on_disk"])
def test_a_model_that_is_not_loaded_holds_nothing(state: str) -> None:
    table = a_table(1, some_specs(a_model(prefix_cache_tokens=KEEPS, state=state)))
    assert cached_tokens(LONG, {node_id(1): 3000}, table) == {}


def test_only_those_who_hold_most_are_priced_again() -> None:
    table = a_table(PREFIX_HOLDERS_MAX + 2, KEEPING)
    held = {node_id(n): 512 * n for n in range(1, PREFIX_HOLDERS_MAX + 3)}
    found = cached_tokens(LONG, held, table)
    assert len(found) == PREFIX_HOLDERS_MAX
    assert node_id(1) not in found


def test_a_holder_beyond_the_kept_candidates_comes_in() -> None:
    table = a_table(CANDIDATES_KEPT + 4, KEEPING)
    last = next(n for n in range(1, 13) if node_id(n) not in [c.node_id for c in decide(table, None).ranked])
    decided = decide(table, {node_id(last): 3584})
    assert len(decided.ranked) == CANDIDATES_KEPT
    assert decided.ranked[0].node_id == node_id(last)
    assert len({candidate.node_id for candidate in decided.ranked}) == CANDIDATES_KEPT


def test_who_was_tried_is_not_tried_again_for_what_it_holds() -> None:
    table = a_table(3, KEEPING)
    decided = decide(table, {node_id(1): 3584}, tried=frozenset({node_id(1)}))
    assert [candidate.cached_tokens for candidate in decided.ranked] == [0, 0]


def test_a_policy_is_not_widened_for_a_holder() -> None:
    table = a_table(3, KEEPING)
    decided = decide(table, {node_id(1): 3584}, allowed=AllowedNodes(frozenset({node_id(2), node_id(3)})))
    assert node_id(1) not in [candidate.node_id for candidate in decided.ranked]
    assert node_id(1) in [candidate.node_id for candidate in decide(table, {node_id(1): 3584}).ranked]


def test_a_holder_that_cannot_have_the_job_stays_out() -> None:
    table = a_table(2, KEEPING)
    table.set_load(node_id(1), NodeLoad(draining=True), now_s=NOW_S)
    assert [c.node_id for c in decide(table, {node_id(1): 3584}).ranked] == [node_id(2)]


def test_a_holder_that_was_not_shortlisted_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SCAN_MAX", 2)
    monkeypatch.setattr(matching, "shortlisted", lambda *_, **__: np.array([0, 1]))
    table = a_table(5, KEEPING)
    decided = decide(table, {node_id(5): 3584})
    assert decided.ranked[0].node_id == node_id(5)


def test_a_policy_that_scores_knows_no_affinity() -> None:
    table = a_table(3, KEEPING)
    assert decide(table, {node_id(1): 3000}, ranking=NEURALGRID) == decide(table, None, ranking=NEURALGRID)


def test_what_every_prompt_costs_and_its_last_token_stay() -> None:
    table = a_table(2, KEEPING)
    job = a_job(prompt_tokens=20)
    read_s = part(of(decide(table, {node_id(1): 512}, job), 1), "prefill")
    assert read_s == pytest.approx(SPEED.ttft_s + 1 / SPEED.prefill_tps)


def test_attention_still_covers_what_is_cached() -> None:
    """Of 4,000 tokens 3,000 are cached: the last 1,000 attend to all before them, 4,000² - 3,000² in all."""
    bent = msgspec.structs.replace(SPEED, prefill_square_s=1e-7)
    table = a_table(2, some_specs(a_model(prefix_cache_tokens=KEEPS, measured=bent)))
    read_s = part(of(decide(table, {node_id(1): 3000}), 1), "prefill")
    assert read_s == pytest.approx(SPEED.ttft_s + 1000 / SPEED.prefill_tps + (4000**2 - 3000**2) * 1e-7)
    held = table.reserve(node_id(1), LONG, now_s=NOW_S, cached_tokens=3000)
    assert held.prefill_s == pytest.approx(read_s)


def test_the_explanation_shows_the_discount() -> None:
    table = a_table(2, KEEPING)
    told = msgspec.to_builtins(describe(decide(table, {node_id(2): 3000}), {row.id: row for row in table}))
    assert {line["node"]: line["cached_tokens"] for line in told["ranked"]} == {node_id(1): 0, node_id(2): 3000}


def test_a_reservation_counts_what_is_left_to_read() -> None:
    table = a_table(1, KEEPING)
    held = table.reserve(node_id(1), LONG, now_s=NOW_S, cached_tokens=3000)
    row = table.get(node_id(1))
    assert row is not None
    assert row.own_unread_s == pytest.approx(SPEED.ttft_s + 1000 / SPEED.prefill_tps)
    assert held.kv_bytes == table.reserve(node_id(1), LONG, now_s=NOW_S).kv_bytes
    table.release(held, now_s=NOW_S)
    assert row.own_unread_s == pytest.approx(SPEED.ttft_s + 4000 / SPEED.prefill_tps)


def test_the_table_knows_which_models_are_worth_hashing_for() -> None:
    table = a_table(2)
    assert not table.caches_prefixes(MODEL)
    table.set_specs(node_id(1), KEEPING)
    assert table.caches_prefixes(MODEL)
    assert not table.caches_prefixes("another")
    table.set_specs(node_id(1), some_specs(a_model(id="another")))
    assert not table.caches_prefixes(MODEL)
