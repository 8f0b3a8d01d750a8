"""How early two honest answers may differ."""

from __future__ import annotations

from sparewatt.trust.checks.comparison import Comparison
from sparewatt.trust.checks.tolerance import (
    HAZARD_MAX,
    HAZARD_MIN,
    NO_PAIRS,
    HonestPairs,
    drifts,
    is_too_early,
)


def test_before_anything_was_learned_only_a_difference_in_the_first_pieces_is_too_early() -> None:
    hazard = NO_PAIRS.hazard
    assert is_too_early(Comparison(0, differs=True), hazard=hazard)
    assert not is_too_early(Comparison(2, differs=True), hazard=hazard)
    assert not is_too_early(Comparison(0, differs=False), hazard=hazard)


def test_nodes_that_never_differ_make_the_check_stricter() -> None:
    quiet = HonestPairs(pieces=10_000)
    assert quiet.hazard < NO_PAIRS.hazard
    assert is_too_early(Comparison(15, differs=True), hazard=quiet.hazard)


def test_noisy_pairs_widen_the_tolerance_up_to_a_bound() -> None:
    noisy = HonestPairs(pieces=1_000, differences=500)
    assert noisy.hazard == HAZARD_MAX
    assert is_too_early(Comparison(0, differs=True), hazard=HAZARD_MAX), "the first word never may differ"
    assert HonestPairs(pieces=10**9).hazard == HAZARD_MIN


def test_a_pair_adds_what_it_agreed_on_and_whether_it_differed() -> None:
    assert NO_PAIRS.plus(Comparison(7, differs=True)).plus(Comparison(9, differs=False)) == HonestPairs(16, 1)


def test_a_node_that_always_differs_a_little_later_drifts() -> None:
    coarser = HonestPairs(pieces=3 * 3, differences=3)
    assert drifts(coarser, hazard=NO_PAIRS.hazard)


def test_an_honest_node_that_differs_now_and_then_does_not_drift() -> None:
    measured = HonestPairs(pieces=2_750, differences=11)
    assert not drifts(measured, hazard=NO_PAIRS.hazard)
    assert not drifts(HonestPairs(pieces=0, differences=2), hazard=NO_PAIRS.hazard), "two may be chance"
