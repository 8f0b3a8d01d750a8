from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import MAX_NANO, format_usd, parse_usd, token_cost
from tests.trying import at_least

amounts = st.integers(min_value=0, max_value=MAX_NANO)
counts = st.integers(min_value=0, max_value=1 << 24)


@at_least(100)
@given(amounts)
def test_an_amount_survives_being_written_and_read(nano: int) -> None:
    text = format_usd(nano)
    assert parse_usd(text) == nano
    assert "e" not in text.lower()


@at_least(100)
@given(st.text(max_size=60))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    try:
        nano = parse_usd(text)
    except InvalidAmount:
        return
    assert 0 <= nano <= MAX_NANO


@at_least(100)
@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_any_decimal_is_read_exactly_or_refused(number: object) -> None:
    text = str(number)
    try:
        nano = parse_usd(text)
    except InvalidAmount:
        return
    assert parse_usd(format_usd(nano)) == nano


@at_least(100)
@given(counts, counts, amounts, amounts)
def test_the_parts_of_a_cost_never_add_up_to_more_than_the_whole(
    prompt: int, completion: int, prompt_price: int, completion_price: int
) -> None:
    def cost(prompt_tokens: int, completion_tokens: int) -> int:
        return token_cost(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            prompt_price=prompt_price,
            completion_price=completion_price,
        )

    parts = cost(prompt, 0) + cost(0, completion)
    assert 0 <= cost(prompt, completion) - parts <= 1
