from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.core.errors import InvalidAmount
from sparewatt.core.money import Nano, parse_usd
from sparewatt.node.specs.token_price import NodeTokenPrice, per_mtok, price_of
from sparewatt.protocol.link.node_report import PRICE_NANO_MAX, Speed
from tests.unit.node.rig import node_settings

SPEED = Speed(prefill_tps=1000.0, decode_tps=100.0)


def test_an_hours_tokens_cost_what_the_hour_costs() -> None:
    assert per_mtok(parse_usd("0.36"), 100.0) == parse_usd("1")


@pytest.mark.parametrize("tokens_per_s", [1e-3, 0.7, 33.3, 1e7])
def test_a_slower_node_is_dearer_per_token(tokens_per_s: float) -> None:
    assert per_mtok(parse_usd("1"), tokens_per_s) >= per_mtok(parse_usd("1"), 2 * tokens_per_s)


def test_a_price_stays_within_what_a_gateway_takes() -> None:
    assert per_mtok(parse_usd("1000000"), 1e-3) == PRICE_NANO_MAX


def test_without_prices_they_follow_from_the_hour_and_the_measured_speed(tmp_path: Path) -> None:
    price = price_of(node_settings(tmp_path, hourly_usd="0.36"), SPEED)
    assert price == NodeTokenPrice(prompt=parse_usd("0.1"), completion=parse_usd("1"))


def test_what_the_owner_set_wins_even_if_it_is_nothing(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, prompt_usd_per_mtok="0", completion_usd_per_mtok="2.5")
    assert price_of(settings, SPEED) == NodeTokenPrice(prompt=Nano(0), completion=parse_usd("2.5"))


def test_one_price_may_be_set_and_the_other_follow(tmp_path: Path) -> None:
    price = price_of(node_settings(tmp_path, hourly_usd="0.36", prompt_usd_per_mtok="7"), SPEED)
    assert price == NodeTokenPrice(prompt=parse_usd("7"), completion=parse_usd("1"))


def test_what_is_not_measured_has_no_price_yet(tmp_path: Path) -> None:
    assert price_of(node_settings(tmp_path), None) == NodeTokenPrice(Nano(0), Nano(0))


@pytest.mark.parametrize("field", ["hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok"])
def test_a_price_that_is_none_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidAmount):
        price_of(node_settings(tmp_path, **{field: "cheap"}), SPEED)
