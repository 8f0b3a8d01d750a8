"""The usual price: what one owner's word can move, and what it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId
from sparewatt.core.money import NANO_PER_USD
from sparewatt.inference.metering.usual_price import (
    BAND_TIMES,
    VOTE_TOKENS_MAX,
    PriceBounds,
    bounded_weights,
    usual_price,
)

BOUNDS = PriceBounds(floor=NANO_PER_USD, ceiling=20 * NANO_PER_USD)
ABSURD_USD = 1_000_000.0
LIAR = AccountId("liar")
MANY = 10**12
"""Tokens that nobody counts who sells them to himself."""


def nano(usd: float) -> int:
    return round(usd * NANO_PER_USD)


def usual(asks: dict[str, list[float]], delivered: dict[str, int] | None = None) -> float | None:
    """In dollars: what owners ask, and what they delivered."""
    found = usual_price(
        {AccountId(owner): [nano(usd) for usd in prices] for owner, prices in asks.items()},
        {AccountId(owner): tokens for owner, tokens in (delivered or {}).items()},
        BOUNDS,
    )
    return None if found is None else found / NANO_PER_USD


prices = st.integers(0, 2 * BOUNDS.ceiling)
owners = st.sampled_from([AccountId(name) for name in "abcdefgh"])
asks_of_many = st.dictionaries(owners, st.lists(prices, min_size=1, max_size=4), max_size=8)
deliveries = st.dictionaries(owners, st.integers(0, 10**9), max_size=8)


# a new model


def test_a_model_without_any_price_has_none_and_its_cap_is_the_ceiling() -> None:
    assert usual({}) is None
    assert BOUNDS.cap(None) == BOUNDS.ceiling


def test_a_lone_newcomer_with_an_absurd_price_moves_nothing() -> None:
    assert usual({"liar": [ABSURD_USD]}) is None


def test_before_anything_was_delivered_each_owner_has_one_vote() -> None:
    assert usual({"a": [2.0], "b": [3.0], "c": [4.0]}) == 3.0
    assert usual({"a": [2.0], "b": [3.0], "c": [9.0] * 50}) == 3.0


def test_before_anything_was_delivered_a_node_that_asks_nothing_shuts_nobody_out() -> None:
    """The cheapest lie against a new model: join with price 0, and fail every request."""
    found = usual({"liar": [0.0] * 100, "honest": [5.0]})
    assert BOUNDS.cap(nano(found or 0.0)) >= nano(5.0)


# many nodes, absurd prices


def test_five_absurd_prices_beside_three_honest_ones_change_nothing() -> None:
    honest = {"a": [0.5, 0.5, 0.5]}
    for delivered in ({}, {"a": 1}, {"a": 10**6}):
        assert usual(honest | {"liar": [ABSURD_USD] * 5}, delivered) == usual(honest, delivered) == 0.5
        five = {f"liar{n}": [ABSURD_USD] for n in range(5)}
        assert usual(honest | five, delivered) == 0.5


def test_who_has_delivered_nothing_has_no_say_where_others_have() -> None:
    """Whatever they ask, also within the ceiling, and however many they are."""
    asks = {"honest": [0.5]} | {f"liar{n}": [19.0] for n in range(50)}
    assert usual(asks, {"honest": 1_000}) == 0.5
    asks = {"honest": [5.0]} | {f"liar{n}": [0.0] for n in range(50)}
    assert usual(asks, {"honest": 1_000}) == 5.0


def test_a_few_tokens_each_do_not_outvote_one_who_delivers_nearly_all() -> None:
    """The cheapest lie with several accounts: one token through each of them."""
    asks = {"honest": [0.5]} | {f"liar{n}": [15.0] for n in range(20)}
    assert usual(asks, {"honest": 10**6} | {f"liar{n}": 1 for n in range(20)}) == 0.5


def test_of_very_many_owners_all_vote() -> None:
    asks = {f"owner{n}": [1.0 + n / 1000] for n in range(501)}
    assert usual(asks, {f"owner{n}": 7 for n in range(501)}) == 1.25


def test_a_price_beyond_the_band_has_no_vote() -> None:
    asks = {"a": [1.0], "b": [2.0], "c": [19.0], "d": [19.0]}
    delivered = dict.fromkeys("abcd", 50_000)
    assert usual(asks, delivered) == 2.0  # the lower half; 19 is within ten times that
    assert usual(asks | {"b": [1.5]}, delivered) == 1.0  # of a and b alone


def test_an_owners_vote_is_the_median_of_his_nodes() -> None:
    assert usual({"a": [1.0, 2.0, 9.0, ABSURD_USD]}, {"a": 5}) == 2.0


# an owner who buys from himself


def test_of_two_owners_the_one_who_delivered_more_decides() -> None:
    assert usual({"a": [1.0], "b": [4.0]}, {"a": 10, "b": 90}) == 4.0
    assert usual({"a": [1.0], "b": [4.0]}, {"a": 90, "b": 10}) == 1.0
    assert usual({"a": [1.0], "b": [4.0]}, {"a": 50, "b": 50}) == 1.0


def test_more_than_a_whole_vote_buys_nothing() -> None:
    asks = {"honest": [0.5], "liar": [4.0]}
    assert usual(asks, {"honest": VOTE_TOKENS_MAX, "liar": MANY}) == 0.5


@given(
    st.integers(0, BOUNDS.ceiling // BAND_TIMES),
    st.lists(st.tuples(st.floats(1, BAND_TIMES), st.integers(1_000, 10**9)), min_size=2, max_size=7),
    st.integers(0, 10**15),
)
def test_one_owner_who_sells_without_end_stays_within_what_the_others_ask(
    cheapest: int, others: list[tuple[float, int]], lie: int
) -> None:
    """With two others in one band who deliver a hundredth of a vote each: nobody moves the price beyond theirs."""
    honest = [(int(cheapest * times), tokens) for times, tokens in others]
    asks = {AccountId(f"honest{n}"): [price] for n, (price, _) in enumerate(honest)}
    delivered = {AccountId(f"honest{n}"): tokens for n, (_, tokens) in enumerate(honest)}
    found = usual_price(asks | {LIAR: [lie]}, delivered | {LIAR: MANY}, BOUNDS)
    asked = [price for price, _ in honest]
    assert found is not None
    assert min(asked) <= found <= max(asked)


# any input


@given(asks_of_many, deliveries)
def test_a_usual_price_is_one_that_somebody_asks_and_within_the_ceiling(
    asks: dict[AccountId, list[int]], delivered: dict[AccountId, int]
) -> None:
    found = usual_price(asks, delivered, BOUNDS)
    within = [price for own in asks.values() for price in own if price <= BOUNDS.ceiling]
    assert (found is None) == (not within)
    assert found is None or found in within


@given(asks_of_many, deliveries, st.integers(1, 9))
def test_prices_above_the_ceiling_change_nothing(
    asks: dict[AccountId, list[int]], delivered: dict[AccountId, int], count: int
) -> None:
    more = {owner: [*own, *[BOUNDS.ceiling + 1] * count] for owner, own in asks.items()}
    more[LIAR] = [BOUNDS.ceiling + 1] * count
    assert usual_price(more, delivered | {LIAR: MANY}, BOUNDS) == usual_price(asks, delivered, BOUNDS)


@given(asks_of_many, deliveries, st.permutations("abcdefgh"))
def test_the_order_of_owners_does_not_matter(
    asks: dict[AccountId, list[int]], delivered: dict[AccountId, int], order: list[str]
) -> None:
    moved = {AccountId(name): asks[AccountId(name)] for name in order if AccountId(name) in asks}
    assert usual_price(moved, delivered, BOUNDS) == usual_price(asks, delivered, BOUNDS)


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=9))
def test_nobody_has_more_than_a_third_and_who_has_more_never_weighs_less(tokens: list[int]) -> None:
    weights = bounded_weights(tokens)
    assert 3 * max(weights) <= sum(weights)
    by_tokens = [weight for _, weight in sorted(zip(tokens, weights, strict=True))]
    assert by_tokens == sorted(by_tokens)


@pytest.mark.parametrize(
    ("tokens", "weights"),
    [
        ([], []),
        ([7], [1]),
        ([7, 900], [1, 1]),
        ([10, 10, 10], [20, 20, 20]),
        ([100, 10, 1], [2, 2, 2]),
        ([100, 100, 90, 1], [182, 182, 180, 2]),
        ([9, 5, 5, 5], [15, 10, 10, 10]),
    ],
)
def test_weights_are_cut_to_a_third(tokens: list[int], weights: list[int]) -> None:
    assert bounded_weights(tokens) == weights


@pytest.mark.parametrize(
    ("usd", "cap_usd", "band_usd"),
    [(0.0, 1.0, 1.0), (0.1, 1.0, 1.0), (0.5, 2.0, 5.0), (1.5, 6.0, 15.0), (9.0, 20.0, 20.0)],
)
def test_cap_and_band_stay_between_floor_and_ceiling(usd: float, cap_usd: float, band_usd: float) -> None:
    assert BOUNDS.cap(nano(usd)) == nano(cap_usd)
    assert BOUNDS.band(nano(usd)) == nano(band_usd)
    assert BOUNDS.band(nano(usd)) <= max(BOUNDS.floor, BAND_TIMES * nano(usd))


def test_an_operators_ceiling_wins_over_the_floor() -> None:
    assert PriceBounds(floor=nano(1.0), ceiling=nano(0.5)).cap(nano(0.4)) == nano(0.5)
