from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import MAX_NANO, NANO_PER_USD, format_usd, parse_usd, split_by_weight, token_cost


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("-0", 0),
        ("0.000000001", 1),
        ("0.02", 20_000_000),
        (".5", 500_000_000),
        ("$1.50", 1_500_000_000),
        (" 5 ", 5 * NANO_PER_USD),
        ("1e-3", 1_000_000),
        ("0.02" + "0" * 60, 20_000_000),
        ("1000000000", MAX_NANO),
    ],
)
def test_an_amount_is_read_exactly(text: str, nano: int) -> None:
    assert parse_usd(text) == nano


@pytest.mark.parametrize(
    "text",
    [
        "",
        "$",
        "$$1",
        "abc",
        "1,5",
        "1 2",
        "0x10",
        "-1",
        "-0.000000001",
        "nan",
        "sNaN",
        "inf",
        "-Infinity",
        "0.0000000001",
        "1000000000.000000001",
        "1e999999",
        "1e-999999",
        "1e99999999999999999999",
        "9" * 5000,
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidAmount):
        parse_usd(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1", "is less than nothing"),
        ("1000000001", r"is more than \$1,000,000,000"),
        ("0.0000000001", "has more than nine decimals"),
        ("9" * 41, "has too many digits"),
        ("ten", "is not an amount"),
        ("inf", "is not an amount"),
    ],
)
def test_the_error_says_what_is_wrong_with_it(text: str, why: str) -> None:
    with pytest.raises(InvalidAmount, match=why):
        parse_usd(text)


def test_an_amount_that_would_have_to_be_rounded_is_refused() -> None:
    with pytest.raises(InvalidAmount):
        parse_usd("0.02" + "0" * 40 + "1")


def test_the_error_quotes_no_more_than_the_beginning() -> None:
    with pytest.raises(InvalidAmount, match=r"^'x{40}' is not an amount"):
        parse_usd("x" * 10_000)


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (20_000_000, "0.02"),
        (100 * NANO_PER_USD, "100"),
        (MAX_NANO, "1000000000"),
        (-1_500_000_000, "-1.5"),
    ],
)
def test_an_amount_is_written_without_exponent_and_trailing_zeros(nano: int, text: str) -> None:
    assert format_usd(nano) == text


def test_twenty_tokens_each_way_at_two_cents_per_million_cost_800_nano() -> None:
    price = parse_usd("0.02")
    cost = token_cost(prompt_tokens=20, completion_tokens=20, prompt_price=price, completion_price=price)
    assert cost == 800


def test_a_cost_is_rounded_down_once_and_not_per_part() -> None:
    cost = token_cost(prompt_tokens=1, completion_tokens=1, prompt_price=500_000, completion_price=500_000)
    assert cost == 1
    assert token_cost(prompt_tokens=1, completion_tokens=0, prompt_price=999_999, completion_price=0) == 0


weights = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**12), min_size=1)


@given(st.integers(0, 10**15), weights)
def test_shares_by_weight_sum_to_the_amount_exactly(total: int, given_weights: dict[str, int]) -> None:
    shares = split_by_weight(total, given_weights)
    assert sum(shares.values()) == (total if any(given_weights.values()) else 0)
    assert all(share == 0 for name, share in shares.items() if not given_weights[name])


@given(st.integers(0, 10**6), weights, st.data())
def test_whose_weight_alone_grows_never_gets_less(
    total: int, given_weights: dict[str, int], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(given_weights)))
    grown = given_weights | {name: given_weights[name] + data.draw(st.integers(0, 10**12))}
    assert split_by_weight(total, grown)[name] >= split_by_weight(total, given_weights)[name]
