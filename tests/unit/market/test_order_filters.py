from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField, UnsupportedParameter
from sparewatt.market.order_filters import LATENCY_VALUE_DEFAULT, OrderFilters, order_filters, rtt_row
from sparewatt.market.rule import status_of
from sparewatt.policy.fields import FIELDS
from sparewatt.policy.market_ids import (
    COMPLIANCE_ID,
    COUNTRY_ID,
    GPU_CLASS_ID,
    GPU_MODEL_ID,
    OTHER_GPU,
    TIER_ID,
    gpu_class_id_of,
    mask_of,
    models_of_class,
)
from sparewatt.policy.parser import read_line
from sparewatt.policy.zones import ZONE_ID
from sparewatt.protocol.contracts.match import OrderTerms, Profile
from sparewatt.protocol.contracts.reasons import BidStatus

PROVIDER = "0x" + "ab" * 20
PRICE_UUSD = 2_000_000


def filters(line: str) -> OrderFilters:
    return order_filters(read_line(line))


def test_an_empty_policy_asks_for_one_gpu_of_any_kind() -> None:
    assert filters("") == OrderFilters(gpu_units=1)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("region=DE,FR", "countries", mask_of(COUNTRY_ID["DE"], COUNTRY_ID["FR"])),
        ("tier>=verified", "tiers", mask_of(TIER_ID["verified"], TIER_ID["datacenter"])),
        ('gpu=h100,"RTX 4090"', "gpu_models", mask_of(GPU_MODEL_ID["h100"], GPU_MODEL_ID["rtx-4090"])),
        ("gpu_class=a100", "gpu_models", mask_of(*models_of_class("a100"))),
        ("gpu_class>=a100", "min_gpu_class", GPU_CLASS_ID["a100"]),
        ("gpu_class>=a100", "gpu_models", 0),
        ("vram_gb>=24", "min_vram_gb", 24),
        ("vram_gb>24", "min_vram_gb", 25),
        ("vram_gb>=23.5", "min_vram_gb", 24),
        ("gpu_count=4", "gpu_units", 4),
        ("gpu_count>=2", "gpu_units", 2),
        ("gpu_count=0", "gpu_units", 0),
        ("uptime>=0.995", "min_uptime_ppm", 995_000),
        ("reputation>0.8", "min_reputation_ppm", 800_001),
        ("max_hourly=1.25", "max_price_uusd", 1_250_000),
        ("compliance=gdpr,soc2", "compliance",
         mask_of(COMPLIANCE_ID["gdpr", "operator"], COMPLIANCE_ID["soc2", "operator"])),
        ("compliance=gdpr attested_by=operator", "compliance", mask_of(COMPLIANCE_ID["gdpr", "operator"])),
        (f"only={PROVIDER}", "only", (PROVIDER,)),
        (f"ignore={PROVIDER}", "ignore", (PROVIDER,)),
        ("near=DE", "latency_value", LATENCY_VALUE_DEFAULT),
    ],
)  # fmt: skip
def test_a_field_becomes_what_contracts_compare(line: str, name: str, value: object) -> None:
    assert getattr(filters(line), name) == value


def test_a_denied_card_leaves_all_others_also_those_without_an_id() -> None:
    mask = filters("gpu!=h100").gpu_models
    assert mask == mask_of(*GPU_MODEL_ID.values(), OTHER_GPU) & ~mask_of(GPU_MODEL_ID["h100"])


def test_names_and_classes_narrow_one_another() -> None:
    assert filters("gpu=a100,h100 gpu_class=a100").gpu_models == mask_of(GPU_MODEL_ID["a100"])
    with pytest.raises(InvalidField, match="leaves no provider"):
        filters("gpu=h100 gpu_class=a100")


UNHELD = (
    *("quantizations=fp8", "data_policy=no_log", "min_throughput=40", "max_ttft_ms=800", "warm=require"),
    *("max_price=1", "order=attic", "sort=price", "weights.price=2", "allow_fallbacks=false", "allow_resume=false"),
    *("require_parameters=true", "retention=none", "checks=none"),
)


@pytest.mark.parametrize("line", UNHELD)
def test_what_an_order_cannot_hold_is_refused_by_name(line: str) -> None:
    name = line.partition("=")[0].partition(".")[0]
    with pytest.raises(UnsupportedParameter, match=f"'{name}'"):
        filters(line)


def test_every_field_of_the_vocabulary_is_either_held_or_refused() -> None:
    refused = {line.partition("=")[0].partition(".")[0] for line in UNHELD}
    held = {
        *("region", "near", "gpu", "gpu_class", "vram_gb", "gpu_count", "uptime", "reputation", "compliance"),
        *("attested_by", "tier", "max_hourly", "only", "ignore"),
    }
    assert refused | held == set(FIELDS)


@pytest.mark.parametrize(
    "line",
    [
        *("vram_gb<80", "gpu_count<3", "uptime<0.5", "gpu=rtx-9999", "gpu!=rtx-9999", "attested_by=operator"),
        *("compliance=gdpr attested_by=nobody", "only=attic", "vram_gb>=70000", "gpu_count=0 gpu=h100"),
        *("gpu_count=0 vram_gb>=24", "gpu_count=0 gpu_class>=a100", "max_hourly=0.0000001"),
        "ignore=" + ",".join(f"0x{number:040x}" for number in range(9)),
    ],
)
def test_a_value_that_an_order_cannot_hold_is_refused(line: str) -> None:
    with pytest.raises(BadRequest):
        filters(line)


def test_the_row_of_distances_has_a_byte_for_each_zone_in_units_of_2_ms() -> None:
    row = rtt_row("DE")
    assert len(row) == 32
    assert row[ZONE_ID["europe-west"]] == 8
    assert row[ZONE_ID["us-east"]] == 40
    assert rtt_row(None) == bytes(32)


def test_a_provider_without_a_zone_gains_nothing_by_it() -> None:
    for place in ("DE", "US", "JP", "AFRICA"):
        row = rtt_row(place)
        assert row[0] == max(row)
        assert min(row[len(ZONE_ID) + 1 :]) == max(row)


def profile(**changes: int) -> Profile:
    values = {
        "country": COUNTRY_ID["DE"], "zone": ZONE_ID["europe-west"], "tier": TIER_ID["community"],
        "gpu_model": GPU_MODEL_ID["h100"], "gpu_class": gpu_class_id_of("h100"), "vram_gb": 80, "gpu_units": 2,
        "compliance": 0, "uptime_ppm": 10**6, "reputation_ppm": 10**6,
    }  # fmt: skip
    return Profile(provider=PROVIDER, epoch=1, **(values | changes))


def terms(line: str) -> OrderTerms:
    made: dict[str, Any] = dataclasses.asdict(filters(line))
    made["max_price_uusd"] = made["max_price_uusd"] or 10 * PRICE_UUSD
    times = ("commit_ms", "reveal_ms", "start_s", "standin_s", "down_s", "reclaim_s", "empty_grace_s", "duration_s")
    return OrderTerms(**made | dict.fromkeys(times, 60), payment_rule=0)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("region=EU gpu_class>=a100 vram_gb>=80 gpu_count=2", BidStatus.ELIGIBLE),
        ("region=US", BidStatus.COUNTRY),
        ("tier>=verified", BidStatus.TIER),
        ("gpu!=h100", BidStatus.GPU_MODEL),
        ("gpu_class>=h200", BidStatus.GPU_CLASS),
        ("vram_gb>=81", BidStatus.VRAM),
        ("gpu_count=3", BidStatus.GPU_UNITS),
        ("compliance=gdpr", BidStatus.COMPLIANCE),
        ("max_hourly=1", BidStatus.OVER_MAX_PRICE),
        (f"ignore={PROVIDER}", BidStatus.IGNORED),
    ],
)
def test_the_auction_decides_by_the_policy(line: str, status: BidStatus) -> None:
    assert status_of(terms(line), profile(), price_uusd=PRICE_UUSD) is status


def test_who_hides_its_country_is_in_no_region() -> None:
    assert status_of(terms("region=EU"), profile(country=0), price_uusd=PRICE_UUSD) is BidStatus.COUNTRY
