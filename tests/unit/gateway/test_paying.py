"""What a request may cost per token: what it says, else a few times what is usual. An absurd price moves nothing."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.core.money import Nano
from sparewatt.gateway.openai.paying import price_cap, usual_of
from sparewatt.inference.metering.prices import PriceCaps
from sparewatt.ledger.model import TokenPrice
from sparewatt.ledger.rules import hold_for
from sparewatt.policy.carriers import read_line
from sparewatt.policy.model import Prices
from sparewatt.testing.clock import ManualClock
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, a_table, node_id, some_specs

NOWHERE = ModelId("nobody-has-it")
USUAL = TokenPrice(Nano(80_000_000), Nano(240_000_000))


@pytest.mark.parametrize(
    ("line", "cap", "usual"),
    [
        ("", (80_000_000, 240_000_000), Prices(80_000_000, 240_000_000)),
        ("region=EU", (80_000_000, 240_000_000), Prices(80_000_000, 240_000_000)),
        ("max_price<=0.01", (10_000_000, 10_000_000), None),
        ("max_price<=5", (5_000_000_000, 5_000_000_000), None),
        ("max_price.prompt<=0.01", (10_000_000, 240_000_000), Prices(None, 240_000_000)),
        ("max_price.completion<=0", (80_000_000, 0), Prices(80_000_000, None)),
    ],
)
def test_a_price_that_is_named_counts_and_the_rest_is_usual(
    line: str, cap: tuple[int, int], usual: Prices | None
) -> None:
    price = price_cap(read_line(line), USUAL)
    assert (price.prompt, price.completion) == cap
    assert usual_of(read_line(line), price) == usual


def test_an_absurd_price_makes_no_hold_absurd() -> None:
    table = a_table(3)
    clock = ManualClock(now_s=NOW_S)
    before = PriceCaps(table.median_price, clock=clock).of(MODEL)
    table.connect(node_id(4), some_specs(a_model(prompt_price_nano=10**15, completion_price_nano=10**15)), now_s=NOW_S)
    after = PriceCaps(table.median_price, clock=clock).of(MODEL)
    assert after == before
    assert hold_for(after, prompt_tokens=1000, output_tokens=1000) < 10**6
    assert table.dearest_price(MODEL) == (10**15, 10**15)


def test_prices_of_nobody_are_nothing() -> None:
    table = a_table(1)
    assert table.dearest_price(NOWHERE) == (0, 0)
    assert table.median_price(NOWHERE) == (0, 0)


@pytest.mark.parametrize("nano", [0, 1, 7, 20_000_001, 333_333_333, 10**15 - 1, 10**15])
def test_the_dearest_price_is_exact(nano: int) -> None:
    table = a_table(1, some_specs(a_model(prompt_price_nano=nano, completion_price_nano=nano)))
    assert table.dearest_price(MODEL) == (nano, nano)
