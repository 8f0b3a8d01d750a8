"""A short random walk of attackers through the market; the soak runs a longer one."""

from __future__ import annotations

from tests.evm.market_walk import ATTACKERS, walk_market


def test_no_attacker_gains_by_what_it_does() -> None:
    counts = walk_market(seed=1, steps=200)
    assert counts.total() == 200


def test_there_are_more_than_twenty_kinds_of_attackers() -> None:
    assert len(ATTACKERS) > 20
