"""The price of a lease by a standing offer, and which offers a gateway takes."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.protocol.link.lease_offer import LEASE_PRICE_UUSD_MAX, LeaseDiscount, LeaseOffer, LeasePrice
from sparewatt.protocol.link.node_report import validated

OFFER = LeaseOffer(
    prices=(LeasePrice(1, 400_000), LeasePrice(4, 1_500_001)),
    cpu_hourly_uusd=10_001,
    discounts=(LeaseDiscount(86_400, 100_000), LeaseDiscount(7 * 86_400, 250_000)),
    longest_s=30 * 86_400,
)


@pytest.mark.parametrize(
    ("gpus", "cpu_milli", "duration_s", "uusd"),
    [
        (1, 4_000, 3_600, 400_000),
        (2, 4_000, 3_600, 800_000),
        (3, 4_000, 3_600, 1_200_000),
        (4, 4_000, 3_600, 1_500_001),
        (6, 4_000, 3_600, 2_250_002),  # rounded up
        (1, 1_000, 86_399, 400_000),
        (1, 1_000, 86_400, 360_000),
        (1, 1_000, 8 * 86_400, 300_000),
        (0, 1_000, 60, 10_001),
        (0, 2_500, 60, 25_003),
        (0, 1, 60, 11),
    ],
)
def test_the_price_of_a_lease(gpus: int, cpu_milli: int, duration_s: int, uusd: int) -> None:
    assert OFFER.hourly_uusd(gpus=gpus, cpu_milli=cpu_milli, duration_s=duration_s) == uusd


def test_what_has_no_price_is_not_offered() -> None:
    no_single = LeaseOffer(prices=(LeasePrice(4, 1_500_000),), longest_s=60)
    assert no_single.hourly_uusd(gpus=1, cpu_milli=0, duration_s=60) is None
    assert no_single.hourly_uusd(gpus=0, cpu_milli=1_000, duration_s=60) is None


def test_a_price_beyond_the_protocols_is_none() -> None:
    dear = LeaseOffer(prices=(LeasePrice(1, LEASE_PRICE_UUSD_MAX),), longest_s=60)
    assert dear.hourly_uusd(gpus=1, cpu_milli=0, duration_s=60) == LEASE_PRICE_UUSD_MAX
    assert dear.hourly_uusd(gpus=2, cpu_milli=0, duration_s=60) is None


def test_no_price_falls_to_nothing() -> None:
    cheap = LeaseOffer(cpu_hourly_uusd=1, discounts=(LeaseDiscount(0, 999_999),), longest_s=60)
    assert cheap.hourly_uusd(gpus=0, cpu_milli=1_000, duration_s=60) == 1
    assert cheap.hourly_uusd(gpus=0, cpu_milli=0, duration_s=60) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"prices": tuple(LeasePrice(number, 1) for number in range(1, 18))},
        {"prices": (LeasePrice(0, 1),)},
        {"prices": (LeasePrice(1, 0),)},
        {"discounts": (LeaseDiscount(0, 1_000_000),)},
        {"gpus": 1_025},
        {"egress": 2},
        {"cpu_milli": -1},
        {"longest_s": 1 << 32},
    ],
)
def test_an_absurd_offer_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        validated(msgspec.structs.replace(OFFER, **wrong))
