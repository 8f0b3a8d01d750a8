from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.leasing.orders.cloud_prices import PUBLISHED, published_prices
from sparewatt.policy.market_ids import GPU_MODEL_ID


@pytest.mark.parametrize("price", PUBLISHED, ids=lambda price: price.instance)
def test_each_price_has_its_day_and_its_source(price: object) -> None:
    found = next(each for each in PUBLISHED if each is price)
    assert found.gpu in GPU_MODEL_ID
    assert dt.date.fromisoformat(found.as_of.split()[-1]) < dt.date(2026, 12, 1)
    assert found.source.startswith("https://")
    assert 0 < found.hourly_usd < 50


@pytest.mark.parametrize("name", ["rtx-4090", "NVIDIA GeForce RTX 4090", "rtx4090"])
def test_a_card_is_found_by_any_spelling(name: str) -> None:
    assert [str(price.hourly_usd) for price in published_prices(name)] == ["1.11600"]


def test_a_page_without_a_date_is_not_given_one() -> None:
    assert {price.as_of.startswith("undated") for price in PUBLISHED if price.cloud == "RunPod"} == {True}


def test_another_product_is_called_what_it_is() -> None:
    """A serverless worker costs more than a machine by the hour: nobody shall take it for one."""
    assert all("serverless" in price.instance for price in PUBLISHED if price.cloud == "RunPod")


@pytest.mark.parametrize("name", ["rtx-2060", "voodoo", ""])
def test_a_card_that_no_source_names_has_no_price(name: str) -> None:
    assert published_prices(name) == []
