from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.orders.offers import find_able
from sparewatt.leasing.orders.provider_checks import OfferingProvider
from sparewatt.leasing.orders.quote import OFFERS_SHOWN_MAX, make_quote
from sparewatt.policy.market_ids import GPU_MODEL_ID
from sparewatt.protocol.api.leases import LeaseQuote
from tests.unit.leasing.orders.samples import address, order, priced, provider


def quote(*views: OfferingProvider, **fields: Any) -> LeaseQuote:
    asked = order(**fields)
    return make_quote(asked, find_able(asked, views), providers=len(views))


def said(shown: LeaseQuote, words: str) -> bool:
    return any(words in note for note in shown.notes)


def test_the_price_follows_from_the_offers_and_is_shown_with_what_is_held() -> None:
    shown = quote(priced(1, 400_000), priced(2, 1_000_000), duration="2h", count=2)
    assert (shown.able, shown.providers, shown.count) == (2, 2, 2)
    assert shown.prices is not None
    assert (shown.prices.least_usd, shown.prices.dearest_usd) == ("0.4", "1")
    assert (shown.max_hourly_usd, shown.max_hourly_source) == ("1.25", "offers")
    assert (shown.deposit_usd, shown.total_usd, shown.covers_s) == ("2.5", "5", 7_200)
    assert [offer.provider for offer in shown.offers] == [address(1), address(2)]


def test_a_price_of_the_policy_holds() -> None:
    shown = quote(provider(), policy={"max_hourly": "0.5"})
    assert (shown.max_hourly_usd, shown.max_hourly_source, shown.deposit_usd) == ("0.5", "policy", "0.5")


def test_without_offer_and_price_nothing_is_made_up() -> None:
    shown = quote()
    assert (shown.prices, shown.max_hourly_usd, shown.deposit_usd, shown.total_usd) == (None, None, None, None)
    assert shown.cloud_prices == []


def test_a_cloud_price_stands_beside_it_with_day_and_source() -> None:
    (price,) = quote(provider()).cloud_prices
    assert (price.gpu, price.hourly_usd, price.as_of) == ("rtx-4090", "1.116", "undated page, read 2026-11-16")
    assert price.source.startswith("https://")
    assert {each.gpu for each in quote(policy={"gpu": ["h100"]}).cloud_prices} == {"h100"}


def test_a_card_that_the_table_misses_is_named() -> None:
    shown = quote(provider(gpu_model=GPU_MODEL_ID["rtx-2060"]))
    assert shown.cloud_prices == []
    assert "rtx-2060" in (shown.cloud_note or "")
    assert "without a GPU" in (quote(resources={"gpus": 0}).cloud_note or "")


def test_what_is_claimed_and_what_was_read_is_told_apart() -> None:
    shown = quote(provider())
    assert shown.offers[0].measured == ["free_bond_usd"]
    assert said(shown, "own claims")
    assert said(shown, "starts the container")


def test_what_a_renter_should_know_is_said_before() -> None:
    assert said(quote(provider(), env={"HF_TOKEN": "x"}), "move HF_TOKEN to 'secrets'")
    assert not said(quote(provider(), env={"EPOCHS": "x"}), "move")
    assert said(quote(provider(), secrets=["T"]), "Only the names of secrets")
    assert quote(provider(), secrets=["T"]).max_attempts == 0
    assert said(quote(provider(), policy={"uptime": ">=0.9"}), "only by the validators: uptime")
    assert said(quote(provider(), duration="10h", max_spend="1"), "lasts 2.0 h of 10.0 h")


def test_bonds_that_are_too_small_for_the_highest_price_are_counted() -> None:
    poor = replace(provider(2), free_bond_uusd=450_000)
    assert said(quote(provider(), poor), "1 of 2 cannot bid")
    assert not said(quote(provider(), poor, policy={"max_hourly": "0.45"}), "cannot bid")


def test_an_offer_above_the_highest_price_is_named() -> None:
    dear = replace(priced(3, 9_000_000), free_bond_uusd=12_000_000)
    shown = quote(provider(1), provider(2), dear)
    assert shown.max_hourly_usd == "0.5"
    assert said(shown, "1 of 3 are above the highest price, up to $9")
    assert not said(shown, "cannot bid")


def test_a_highest_price_far_above_most_offers_is_pointed_out() -> None:
    views = [provider(1), provider(2), provider(3), priced(4, 3_000_000)]
    assert said(quote(*views), "far above the median offer of $0.4")
    assert not said(quote(*views, policy={"max_hourly": "5"}), "far above")
    assert not said(quote(*views[:3]), "far above")


def test_more_leases_than_the_offers_have_room_for_are_pointed_out() -> None:
    assert said(quote(provider(1), provider(2), count=3), "room for 2 of 3 leases")
    assert not said(quote(provider(1), provider(2), count=2), "room for")
    processors = {"resources": {"gpus": 0, "cpus": 2, "memory_gb": 1}}
    assert not said(quote(provider(1), count=4, **processors), "room for")
    assert said(quote(provider(1), count=5, **processors), "room for 4 of 5")


def test_a_quote_without_offers_does_not_talk_about_them() -> None:
    assert quote().notes == []


def test_a_list_of_offers_is_bounded() -> None:
    shown = quote(*(provider(number) for number in range(1, OFFERS_SHOWN_MAX + 10)))
    assert (len(shown.offers), shown.able) == (OFFERS_SHOWN_MAX, OFFERS_SHOWN_MAX + 9)


def test_an_order_that_could_not_be_sent_has_no_quote() -> None:
    with pytest.raises(InvalidField, match="bytes together"):
        quote(provider(), env={f"A{number}": "x" * 16_000 for number in range(5)})
    with pytest.raises(InvalidField, match="max_spend"):
        quote(provider(), max_spend="0.01")
