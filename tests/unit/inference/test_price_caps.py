"""What a request without a price may cost, from the prices in a table of nodes, and what their owners are told."""

from __future__ import annotations

from collections.abc import Mapping

from sparewatt.core.ids import AccountId, ModelId
from sparewatt.core.money import NANO_PER_USD, Nano
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.usual_price import CAP_FLOOR
from sparewatt.inference.price_caps import MODELS_CACHED_MAX, NO_PRICE, NODES_PER_FRESH_S, PRICE_FRESH_S, PriceCaps
from sparewatt.ledger.model import TokenPrice
from sparewatt.ledger.rules import hold_for
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs

CEILING = Nano(20 * NANO_PER_USD)
HONEST, LIAR = AccountId("acc_honest"), AccountId("acc_liar")
ABSURD_USD = 1_000_000


class Market:
    """Nodes with owners and prices, and a clock."""

    def __init__(self, delivered: Mapping[AccountId, int] | None = None) -> None:
        self.table = NodeTable()
        self.clock = ManualClock(now_s=NOW_S)
        self.delivered = delivered or {}
        self.caps = PriceCaps(self.table, lambda _: self.delivered, ceiling=CEILING, clock=self.clock)

    def join(self, number: int, usd: float, *, owner: AccountId = HONEST, is_measured: bool = True) -> None:
        """At the same price in both directions; one that is not measured has none yet."""
        price = round(usd * NANO_PER_USD) if is_measured else 0
        changes = {"prompt_price_nano": price, "completion_price_nano": price}
        model = a_model(**changes) if is_measured else a_model(**changes, measured=None)
        self.table.connect(node_id(number), some_specs(model), now_s=NOW_S)
        self.table.set_owner(node_id(number), owner)

    def cap_usd(self) -> float:
        """Of a completion, as a request that comes later sees it."""
        self.clock.advance(PRICE_FRESH_S)
        return self.caps.of(MODEL).completion / NANO_PER_USD

    def notice(self, number: int) -> str | None:
        self.clock.advance(PRICE_FRESH_S)
        row = self.table.get(node_id(number))
        assert row is not None
        return self.caps.notice(row.models[MODEL])


def test_the_cap_is_four_times_the_usual_price() -> None:
    market = Market()
    market.join(1, 2.0)
    assert market.cap_usd() == 8.0


def test_five_absurd_prices_make_no_cap_and_no_hold_absurd() -> None:
    for delivered in ({}, {HONEST: 5_000}):
        market = Market(delivered)
        for number in range(1, 4):
            market.join(number, 0.5)
        before = market.cap_usd()
        for number in range(4, 9):
            market.join(number, ABSURD_USD, owner=LIAR)
        assert market.cap_usd() == before == 2.0
        assert hold_for(market.caps.of(MODEL), prompt_tokens=1000, output_tokens=1000) < 10**7


def test_a_model_that_nobody_has_measured_yet_has_the_networks_cap_and_not_nothing() -> None:
    market = Market()
    market.join(1, 0.72, is_measured=False)
    assert market.cap_usd() == 20.0
    market.join(1, 0.72)
    assert market.cap_usd() == 0.72 * 4


def test_a_newcomer_that_is_not_measured_does_not_lower_the_cap_of_others() -> None:
    market = Market()
    market.join(1, 3.0)
    market.join(2, 3.0, owner=LIAR, is_measured=False)
    assert market.cap_usd() == 12.0


def test_a_lone_newcomer_charges_nobody_more_than_the_networks_cap() -> None:
    market = Market()
    market.join(1, ABSURD_USD)
    assert market.cap_usd() == 20.0
    told = market.notice(1)
    assert told is not None
    assert "$1000000 per million tokens read is above $20" in told
    assert "max_price" in told
    assert "usual price" not in told  # there is none


def test_who_is_offline_has_no_say() -> None:
    market = Market({HONEST: 10, LIAR: 10_000})
    market.join(1, 3.0)
    market.join(2, 1.0, owner=LIAR)
    market.table.disconnect(node_id(2), unix_s=0.0)
    assert market.cap_usd() == 12.0


def test_cheap_and_free_nodes_shut_nobody_out_below_the_floor() -> None:
    market = Market({HONEST: 10, LIAR: 10_000})
    market.join(1, 0.1)
    market.join(2, 0.0, owner=LIAR)
    market.clock.advance(PRICE_FRESH_S)
    assert market.caps.of(MODEL) == CAP_FLOOR
    assert market.notice(1) is None


def test_an_owner_whose_price_is_beyond_the_band_is_told_so() -> None:
    market = Market({HONEST: 5_000})
    market.join(1, 0.5)
    market.join(2, 3.0, owner=LIAR)
    market.join(3, 8.0, owner=LIAR)
    assert market.notice(1) is None
    dear, beyond = market.notice(2), market.notice(3)
    assert dear is not None
    assert beyond is not None
    assert "$3 per million tokens read is above $2" in dear
    assert "The usual price is $0.5; up to 4 times that" in dear
    assert "no say" not in dear
    assert beyond.endswith("A price beyond 10 times that has no say in what is usual.")


def test_one_that_is_not_measured_is_told_nothing() -> None:
    market = Market()
    market.join(1, 5.0, is_measured=False)
    assert market.notice(1) is None


def test_a_model_that_no_node_has_costs_nothing_and_is_not_kept() -> None:
    market = Market()
    assert market.caps.of(ModelId("nobody-has-it")) == NO_PRICE == TokenPrice(Nano(0), Nano(0))


def test_a_cap_is_read_again_after_a_second() -> None:
    market = Market()
    market.join(1, 2.0)
    assert market.cap_usd() == 8.0
    market.join(1, 3.0)
    assert market.caps.of(MODEL).completion == 8 * NANO_PER_USD
    assert market.cap_usd() == 12.0


def test_a_cap_over_very_many_nodes_is_read_less_often() -> None:
    market = Market()
    for number in range(1, 2 * NODES_PER_FRESH_S + 1):
        market.join(number, 2.0)
    assert market.cap_usd() == 8.0
    for number in range(1, 2 * NODES_PER_FRESH_S + 1):
        market.join(number, 3.0)
    assert market.cap_usd() == 8.0
    assert market.cap_usd() == 12.0


def test_what_is_cached_is_bounded() -> None:
    market = Market()
    for number in range(MODELS_CACHED_MAX + 5):
        market.caps.usual(ModelId(f"model {number}"))
    assert len(market.caps._cached) <= MODELS_CACHED_MAX


def test_a_price_that_no_cap_can_be_below_is_not_looked_up() -> None:
    market = Market()
    market.join(1, 0.2)
    assert market.notice(1) is None
    assert not market.caps._cached


def test_nothing_is_kept_of_a_model_that_nobody_has_any_more() -> None:
    market = Market()
    market.join(1, 2.0)
    market.cap_usd()
    market.caps.forget_absent_models()
    assert market.caps._cached
    market.table.set_specs(node_id(1), some_specs(a_model(id="another")))
    market.caps.forget_absent_models()
    assert not market.caps._cached
