"""Weights: thresholds are strict, leaders rotate, a median lies between honest values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.market.quorum import (
    is_quorum,
    is_some,
    leader_of_match,
    leader_of_snapshot,
    lower_median,
    most_stake,
    weight_of,
)
from sparewatt.protocol.signing import keccak256

ORDER = b"\7" * 32
WEIGHTS = {f"0x{n:040x}": n for n in range(5)}
"""Weights 0 to 4: the first validator has none."""


@pytest.mark.parametrize(
    ("weight", "quorum", "some"),
    [(0, False, False), (3, False, False), (4, False, True), (6, False, True), (7, True, True), (9, True, True)],
)
def test_exactly_a_share_is_not_enough(weight: int, *, quorum: bool, some: bool) -> None:
    assert (is_quorum(weight, total=9), is_some(weight, total=9)) == (quorum, some)


def test_nobody_is_no_quorum() -> None:
    assert not is_quorum(0, total=0)
    assert not is_some(0, total=0)


@given(total=st.integers(1, 2**70), data=st.data())
def test_two_quorums_share_more_than_a_third(total: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(2 * total // 3 + 1, total))
    second = data.draw(st.integers(2 * total // 3 + 1, total))
    assert is_quorum(first, total=total)
    assert is_some(first + second - total, total=total)


def test_a_signer_counts_once_and_a_stranger_nothing() -> None:
    last = f"0x{4:040x}"
    assert weight_of([last, last, last.upper().replace("X", "x"), "0x" + "ff" * 20], WEIGHTS) == 4
    assert weight_of(WEIGHTS, WEIGHTS) == 10


def test_leaders_take_turns_among_those_with_weight() -> None:
    leaders = [leader_of_match(WEIGHTS, order_id=ORDER, attempt=1, round_=r) for r in range(8)]
    voters = [address for address in WEIGHTS if WEIGHTS[address]]
    assert sorted(leaders[:4]) == voters
    assert leaders[4:] == leaders[:4]
    start = int.from_bytes(keccak256(ORDER + b"\0\0\0\1"), "big") % 4
    assert leaders[0] == voters[start]
    assert leaders[1] == voters[(start + 1) % 4]


def test_the_order_of_the_set_does_not_matter() -> None:
    turned = dict(reversed(WEIGHTS.items()))
    for round_ in range(4):
        assert leader_of_match(turned, order_id=ORDER, attempt=0, round_=round_) == leader_of_match(
            WEIGHTS, order_id=ORDER, attempt=0, round_=round_
        )


def test_a_snapshot_has_leaders_of_its_own() -> None:
    voters = [address for address in WEIGHTS if WEIGHTS[address]]
    for epoch in range(20):
        start = int.from_bytes(keccak256(b"snapshot" + epoch.to_bytes(4, "big")), "big")
        assert leader_of_snapshot(WEIGHTS, epoch=epoch, round_=3) == voters[(start + 3) % 4]


def test_nobody_leads_an_empty_set() -> None:
    with pytest.raises(ValueError, match="no validator"):
        leader_of_match({"0x" + "00" * 20: 0}, order_id=ORDER, attempt=0, round_=0)
    with pytest.raises(ValueError, match="no validator"):
        leader_of_snapshot({}, epoch=1, round_=0)


@pytest.mark.parametrize(
    ("observed", "median"),
    [
        ([(7, 1)], 7),
        ([(7, 1), (9, 1)], 7),
        ([(7, 1), (9, 2)], 9),
        ([(9, 2), (7, 2)], 7),
        ([(1, 1), (2, 1), (3, 1)], 2),
        ([(1, 1), (2, 1), (3, 1), (4, 1)], 2),
        ([(5, 3), (5, 1), (5, 9)], 5),
        ([(0, 0), (5, 1)], 5),
        ([(1, 50), (2, 49), (3, 1)], 1),
        ([(1, 49), (2, 50), (3, 1)], 2),
    ],
)
def test_the_median_is_the_lower_one(observed: list[tuple[int, int]], median: int) -> None:
    assert lower_median(observed) == median
    assert lower_median(list(reversed(observed))) == median


PUBLISHED = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 100)), min_size=1, max_size=32)


@given(honest=PUBLISHED, faulty=PUBLISHED)
def test_less_than_half_of_the_weight_cannot_move_it_out_of_the_honest_range(
    honest: list[tuple[int, int]], faulty: list[tuple[int, int]]
) -> None:
    heavier = sum(weight for _, weight in faulty) + 1
    scaled = [(value, weight * heavier) for value, weight in honest]
    values = [value for value, _ in honest]
    assert min(values) <= lower_median(scaled + faulty) <= max(values)


def test_a_value_without_weight_is_no_value() -> None:
    for empty in ([], [(5, 0)]):
        with pytest.raises(ValueError, match="weight"):
            lower_median(empty)
        with pytest.raises(ValueError, match="weight"):
            most_stake(empty)


@pytest.mark.parametrize(
    ("observed", "zone"),
    [([(3, 1), (4, 2)], 4), ([(4, 2), (3, 2)], 3), ([(3, 1), (3, 1), (4, 1)], 3), ([(0, 0), (9, 1)], 9)],
)
def test_a_zone_has_most_stake_then_is_the_lowest(observed: list[tuple[int, int]], zone: int) -> None:
    assert most_stake(observed) == zone
