from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.lease_requests import check_order
from sparewatt.leasing.orders.pricing import (
    OfferedPrices,
    default_max_price,
    least_deposit,
    offered_prices,
    price_order,
)
from sparewatt.leasing.orders.terms import LOCAL_TIMES, terms_of
from sparewatt.protocol.contracts.message_ranges import PRICE_UUSD_END
from sparewatt.store.request_params import OrderParams
from tests.unit.leasing.orders.samples import order

USD = 1_000_000


@pytest.mark.parametrize(
    ("prices", "highest"),
    [
        ([], None),
        ([400_000], 500_000),
        ([400_000, 1_000_001], 1_250_002),
        ([1], 2),
        ([PRICE_UUSD_END - 1], PRICE_UUSD_END - 1),
    ],
)
def test_the_highest_price_leaves_room_above_the_dearest_offer(prices: list[int], highest: int | None) -> None:
    assert default_max_price([(price, 2 * PRICE_UUSD_END) for price in prices]) == highest


def test_a_dear_offer_with_a_large_bond_does_not_shut_the_others_out() -> None:
    """The cheapest lie: offer at $9 with a bond of $12, so that nobody with $10 may bid, and be the only bid."""
    honest = [(20_000, 10 * USD), (60_000, 10 * USD), (150_000, 10 * USD)]
    assert default_max_price([*honest, (9 * USD, 12 * USD)]) == 187_500
    assert default_max_price([*honest, *[(9 * USD, 12 * USD)] * 2]) == 187_500
    assert default_max_price([*honest, (7 * USD, 12 * USD)]) == 8_750_000, "it shuts nobody out"


def test_many_nodes_with_next_to_no_bond_do_not_move_the_price() -> None:
    """The other lie: a hundred nodes at a millionth of a dollar, so that no honest offer is below the highest price."""
    honest = [(20_000, 10 * USD), (60_000, 10 * USD), (150_000, 10 * USD)]
    assert default_max_price([*honest, *[(1, 2)] * 100]) == 187_500
    assert default_max_price([*honest, *[(100_000, 125_000)] * 50]) == 187_500


def test_an_offer_whose_bond_is_too_small_for_the_price_above_it_raises_nothing() -> None:
    assert default_max_price([(20_000, 10 * USD), (150_000, 160_000)]) == 25_000


def test_a_range_of_offers_is_shown_with_its_middle() -> None:
    assert offered_prices([]) is None
    assert offered_prices([5, 1, 3, 4]) == OfferedPrices(least=1, median=3, dearest=5)


def test_the_deposit_is_the_whole_duration_at_the_highest_price() -> None:
    price = price_order(order(duration="90m"), max_price_uusd=USD)
    assert (price.deposit_uusd, price.covers_s) == (1_500_000, 5_400)


def test_the_deposit_is_rounded_up_and_at_least_what_the_contract_asks_for() -> None:
    assert price_order(order(duration="2h"), max_price_uusd=7).deposit_uusd == 14
    assert price_order(order(duration="61s"), max_price_uusd=7).deposit_uusd == 1
    short = price_order(order(duration="60s"), max_price_uusd=6 * USD)
    assert short.deposit_uusd == least_deposit(6 * USD) == USD
    assert short.covers_s == 60


def test_what_may_be_spent_caps_all_leases_together() -> None:
    price = price_order(order(duration="10h", count=4, max_spend="10"), max_price_uusd=USD)
    assert price.deposit_uusd == 2_500_000
    assert 4 * price.deposit_uusd <= 10 * USD
    assert price.covers_s == 9_000
    odd = price_order(order(duration="10h", count=3, max_spend="10"), max_price_uusd=USD)
    assert 3 * odd.deposit_uusd <= 10 * USD


def test_more_to_spend_than_the_duration_costs_is_not_held() -> None:
    assert price_order(order(duration="1h", max_spend="100"), max_price_uusd=USD).deposit_uusd == USD


@pytest.mark.parametrize(("spend", "count"), [("0.166665", 1), ("0.333330", 2)])
def test_less_than_the_contracts_minimum_is_refused_with_the_amount(spend: str, count: int) -> None:
    with pytest.raises(InvalidField, match=r"below \$0\.\d+: each lease needs") as caught:
        price_order(order(max_spend=spend, count=count), max_price_uusd=USD)
    assert caught.value.param == "max_spend"


@pytest.mark.parametrize("spend", ["0.166666", "1", "500"])
@pytest.mark.parametrize("duration", ["60s", "1h", "30d"])
def test_what_is_priced_is_what_the_contract_takes(spend: str, duration: str) -> None:
    asked = order(max_spend=spend, duration=duration)
    price = price_order(asked, max_price_uusd=USD)
    terms = terms_of(asked, max_price_uusd=USD, times=LOCAL_TIMES)
    check_order(OrderParams(terms, "0x" + "00" * 32, 100, 2), deposit_micro=price.deposit_uusd, unix_s=0)
