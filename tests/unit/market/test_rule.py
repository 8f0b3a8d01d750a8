"""The rule of a match: eligibility, score, order, pay."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import InvalidField
from sparewatt.market.rule import (
    BidBook,
    awards_of,
    book_of,
    leaf_of,
    snapshot_tree,
    status_of,
    success_ppm,
    task_of,
)
from sparewatt.protocol.contracts.match import NO_LEAF, NO_PROVIDER, Bid, BidLeaf, OrderTerms, Profile
from sparewatt.protocol.contracts.message_ranges import PPM, PRICE_UUSD_END
from sparewatt.protocol.contracts.reasons import BidStatus
from tests.order_terms import order_terms

ORDER = b"\7" * 32
ANY = order_terms(latency_value=0, rtt_row=bytes(32), standin_s=10, reclaim_s=600, duration_s=3_600)
PICKY = dataclasses.replace(
    ANY,
    countries=1 << 49,
    tiers=0b10,
    gpu_models=0b100,
    min_gpu_class=4,
    min_vram_gb=24,
    gpu_units=2,
    compliance=0b101,
    min_uptime_ppm=900_000,
    min_reputation_ppm=800_000,
)


def address(number: int) -> str:
    return f"0x{number:040x}"


GOOD = Profile(
    provider=address(1),
    epoch=1,
    country=49,
    zone=3,
    tier=1,
    gpu_model=2,
    gpu_class=4,
    vram_gb=24,
    gpu_units=2,
    compliance=0b101,
    uptime_ppm=900_000,
    reputation_ppm=800_000,
)


def bid(price: int, provider: str = address(1)) -> Bid:
    return Bid(ORDER, 0, provider, price, bytes(32), price.to_bytes(32, "big"))


def leaf(number: int, price: int, *, terms: OrderTerms = ANY, **changes: Any) -> BidLeaf:
    profile = dataclasses.replace(GOOD, provider=address(number), **changes)
    return leaf_of(terms, bid(price, address(number)), profile)


WORSE: list[tuple[BidStatus, dict[str, Any]]] = [
    (BidStatus.COUNTRY, {"country": 48}),
    (BidStatus.TIER, {"tier": 2}),
    (BidStatus.GPU_MODEL, {"gpu_model": 3}),
    (BidStatus.GPU_CLASS, {"gpu_class": 3}),
    (BidStatus.VRAM, {"vram_gb": 23}),
    (BidStatus.GPU_UNITS, {"gpu_units": 1}),
    (BidStatus.COMPLIANCE, {"compliance": 0b100}),
    (BidStatus.UPTIME, {"uptime_ppm": 899_999}),
    (BidStatus.REPUTATION, {"reputation_ppm": 799_999}),
]


def test_a_profile_that_just_meets_everything_is_eligible() -> None:
    assert status_of(PICKY, GOOD, price_uusd=PICKY.max_price_uusd) is BidStatus.ELIGIBLE


@pytest.mark.parametrize(("status", "changes"), WORSE, ids=lambda v: v.name if isinstance(v, BidStatus) else "")
def test_each_shortfall_has_its_code_and_no_demand_none(status: BidStatus, changes: dict[str, Any]) -> None:
    profile = dataclasses.replace(GOOD, **changes)
    assert status_of(PICKY, profile, price_uusd=1) is status
    lenient = dataclasses.replace(ANY, gpu_units=1)
    assert status_of(lenient, profile, price_uusd=1) is BidStatus.ELIGIBLE


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(WORSE, 2)))
def test_of_two_shortfalls_the_first_is_reported(first: Any, second: Any) -> None:
    profile = dataclasses.replace(GOOD, **first[1], **second[1])
    assert status_of(PICKY, profile, price_uusd=1) is first[0]


def test_price_comes_first_and_names_come_last() -> None:
    named = dataclasses.replace(PICKY, only=(address(2),), ignore=(address(1),))
    assert status_of(named, GOOD, price_uusd=PICKY.max_price_uusd + 1) is BidStatus.OVER_MAX_PRICE
    assert status_of(named, GOOD, price_uusd=1) is BidStatus.NOT_IN_ONLY
    assert status_of(dataclasses.replace(named, only=(address(1),)), GOOD, price_uusd=1) is BidStatus.IGNORED
    assert status_of(dataclasses.replace(PICKY, only=(address(1).upper().replace("X", "x"),)), GOOD, price_uusd=1) == 0


def test_a_score_is_price_and_distance_over_reliability() -> None:
    terms = dataclasses.replace(ANY, latency_value=100, rtt_row=bytes([0, 0, 0, 25, *[0] * 28]))
    found = leaf_of(terms, bid(1_000_000), GOOD)
    assert found.rtt_ms == 50
    assert found.score == (1_000_000 + 100 * 50) * PPM // 720_000


def test_a_rejected_leaf_has_no_score() -> None:
    assert leaf(1, 4_000_000).score == 0
    assert leaf(1, 4_000_000).status == BidStatus.OVER_MAX_PRICE


def test_a_score_never_divides_by_zero() -> None:
    assert success_ppm(leaf(1, 5, uptime_ppm=0)) == 1
    assert success_ppm(leaf(1, 5, uptime_ppm=PPM, reputation_ppm=PPM)) == PPM


@pytest.mark.parametrize(
    ("changes", "price"),
    [({}, 0), ({}, PRICE_UUSD_END), ({"zone": 32}, 1), ({"uptime_ppm": PPM + 1}, 1), ({"reputation_ppm": PPM + 1}, 1)],
)
def test_numbers_out_of_range_make_no_leaf(changes: dict[str, Any], price: int) -> None:
    with pytest.raises(InvalidField):
        leaf(1, price, **changes)
    with pytest.raises(InvalidField):
        leaf_of(dataclasses.replace(ANY, latency_value=1 << 20), bid(1), GOOD)


def test_a_profile_of_another_provider_makes_no_leaf() -> None:
    with pytest.raises(InvalidField, match="another"):
        leaf_of(ANY, bid(1, address(2)), GOOD)


def test_the_largest_score_fits_its_field() -> None:
    terms = dataclasses.replace(ANY, latency_value=(1 << 20) - 1, rtt_row=b"\xff" * 32, max_price_uusd=PRICE_UUSD_END)
    found = leaf(1, PRICE_UUSD_END - 1, terms=terms, uptime_ppm=0)
    assert 0 < found.score < 1 << 61


PRICES = st.lists(st.integers(1, 5_000_000), min_size=0, max_size=8)


def books(prices: list[int]) -> BidBook:
    return book_of(ORDER, [leaf(number + 1, price) for number, price in enumerate(prices)])


@given(PRICES, st.randoms(use_true_random=False))
def test_the_same_bids_in_any_order_give_the_same_task(prices: list[int], rng: Any) -> None:
    leaves = [leaf(number + 1, price) for number, price in enumerate(prices)]
    shuffled = list(leaves)
    rng.shuffle(shuffled)
    assert book_of(ORDER, leaves) == book_of(ORDER, shuffled)


@given(PRICES)
def test_the_first_three_eligible_in_order_are_the_candidates(prices: list[int]) -> None:
    book = books(prices)
    scores = [book.leaves[i].score for i in book.ranking]
    assert scores == sorted(scores)
    eligible = sum(price <= ANY.max_price_uusd for price in prices)
    assert sum(index != NO_LEAF for index in book.candidates) == min(3, eligible)


@given(st.lists(st.integers(1, 3_000_000), min_size=2, max_size=6, unique=True), st.integers(1, 3_000_000))
def test_another_bid_does_not_swap_two_others(prices: list[int], extra: int) -> None:
    before = [books(prices).leaves[i].provider for i in books(prices).ranking]
    after = books([*prices, extra])
    ranked = [after.leaves[i].provider for i in after.ranking]
    assert [provider for provider in ranked if provider in before] == before


def test_equal_scores_are_decided_by_a_hash_and_not_by_the_address() -> None:
    winners = set()
    for salt in range(20):
        leaves = [dataclasses.replace(leaf(number, 5), salt=bytes([salt]) * 32) for number in (1, 2, 3)]
        book = book_of(ORDER, leaves)
        winners.add(book.candidates[0])
        assert sorted(book.ranking) == [0, 1, 2]
    assert winners == {0, 1, 2}


def test_a_provider_bids_once() -> None:
    with pytest.raises(InvalidField, match="two bids"):
        book_of(ORDER, [leaf(1, 5), leaf(1, 6)])


@given(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=5))
def test_the_second_score_pays_the_winner_at_least_its_price_and_at_most_the_runner_ups_score(
    prices: list[int],
) -> None:
    terms = dataclasses.replace(ANY, payment_rule=1)
    book = books(prices)
    first, second, third = awards_of(terms, book)
    won = book.leaves[book.ranking[0]]
    assert won.price_uusd <= first.price_uusd <= terms.max_price_uusd
    if len(prices) == 1:
        assert first.price_uusd == won.price_uusd
        assert second.provider == third.provider == NO_PROVIDER
    else:
        runner_up = book.leaves[book.ranking[1]]
        assert first.price_uusd * PPM // success_ppm(won) <= runner_up.score
        assert second.price_uusd == runner_up.price_uusd
    assert awards_of(ANY, book)[0].price_uusd == won.price_uusd


def test_a_product_beyond_64_bits_is_paid_correctly() -> None:
    terms = dataclasses.replace(ANY, payment_rule=1, max_price_uusd=PRICE_UUSD_END - 1)
    cheap = leaf(1, 1, terms=terms, uptime_ppm=PPM, reputation_ppm=PPM)
    dear = leaf(2, PRICE_UUSD_END - 1, terms=terms, uptime_ppm=0)
    assert (dear.score - cheap.score) * success_ppm(cheap) > 1 << 63
    assert awards_of(terms, book_of(ORDER, [cheap, dear]))[0].price_uusd == PRICE_UUSD_END - 1


def test_a_task_names_what_was_decided() -> None:
    book = books([3, 2, 1])
    task = task_of(book, attempt=4, policy_hash=b"\1" * 32, snapshot_epoch=5, snapshot_root=b"\2" * 32, stake_version=6)
    assert (task.bid_root, task.bid_count) == (book.tree.root, 3)
    assert (task.first, task.second, task.third) == (2, 1, 0)
    assert (
        task_of(
            books([]), attempt=0, policy_hash=b"\1" * 32, snapshot_epoch=1, snapshot_root=bytes(32), stake_version=1
        ).first
        == NO_LEAF
    )


def test_a_snapshot_is_sorted_by_address() -> None:
    profiles = [dataclasses.replace(GOOD, provider=address(n)) for n in (3, 1, 2)]
    ordered, tree = snapshot_tree(profiles)
    assert [profile.provider for profile in ordered] == [address(1), address(2), address(3)]
    assert tree.count == 3
