"""With numba or without: the same best, the same reasons."""

from __future__ import annotations

import numpy as np
import pytest

from sparewatt.core.ids import MatchId
from sparewatt.inference.matcher import kernel
from sparewatt.inference.matcher.entries import Entries, Field
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.policies import BALANCED, ECONOMY, FAST, Policy
from sparewatt.inference.matcher.question import NOBODY, Question
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.testing.matching import MODEL, make_table
from tests.unit.inference.nodes import a_job, node_id, situation
from tests.unit.inference.scans import compare_scans

TABLES = 300


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    kernel.prepare()
    assert kernel.ready()


def test_both_scans_agree_on_random_tables() -> None:
    chance = np.random.default_rng(7)
    ranked = [compare_scans(chance) for _ in range(TABLES)]
    assert sum(n > 0 for n in ranked) > TABLES // 2


@pytest.mark.parametrize("differing_bits", [0, 63, 64, 127, 128, 156])
def test_ties_are_broken_by_the_whole_id(differing_bits: int) -> None:
    entries = Entries()
    for number in (3, 1, 2, 0):
        entries.add(node_id(number << differing_bits), 5, number)
    for field in (Field.OPEN_S, Field.CONTEXT_TOKENS, Field.FITS_TOKENS):
        entries.write_column(field, np.ones(4))
    found = kernel.rank(Question(1.0, 0.0), entries, NOBODY, NOBODY, k=8).places.tolist()
    assert [entries.nodes[place] for place in found] == [node_id(n << differing_bits) for n in range(4)]


@pytest.fixture(scope="module")
def many() -> NodeTable:
    return make_table(12_000)


@pytest.mark.parametrize("policy", [FAST, BALANCED, ECONOMY], ids=lambda policy: policy.name)
@pytest.mark.parametrize("prompt_tokens", [20, 20_000])
def test_a_decision_by_shortlist_is_the_same_both_ways(many: NodeTable, policy: Policy, prompt_tokens: int) -> None:
    job = a_job(id=MatchId("m"), model=MODEL, prompt_tokens=prompt_tokens)
    both = []
    for compiled in (True, False):
        many.shortlists_of(MODEL).clear()
        both.append(match(job, many, situation(now_s=1.0), policy=policy, seed=3, compiled=compiled))
    assert both[0] == both[1]
    assert len(both[0].ranked) == 8
