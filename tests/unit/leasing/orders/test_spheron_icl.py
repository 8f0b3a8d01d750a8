from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.leasing.orders.order_fields import read_order
from sparewatt.leasing.orders.order_file import ORDER_DOCUMENT
from sparewatt.leasing.orders.spheron_icl import read_icl
from sparewatt.leasing.orders.spheron_regions import COUNTRY_OF_REGION
from sparewatt.leasing.orders.translated_order import TranslatedOrder
from sparewatt.policy.document_file import load_document
from sparewatt.policy.model import NameFilter
from sparewatt.policy.regions import COUNTRIES
from tests.unit.leasing.orders.samples import ICL


def document(**profiles: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = load_document(ICL, ORDER_DOCUMENT)
    loaded["profiles"] |= profiles
    return loaded


def test_what_it_says_is_translated() -> None:
    translated = read_icl(document())
    order = read_order(translated.fields)
    assert (order.name, order.duration_s, order.count) == ("hello-world", 120, 1)
    assert (order.gpus, order.cpu_milli, order.memory_mib, order.disk_mib) == (1, 1_000, 20_480, 102_400)
    assert order.policy.gpu == NameFilter(allowed=frozenset({"rtx-4090"}))
    assert (order.policy.tier, order.policy.region) == (frozenset({"community"}), frozenset({"US"}))
    assert (order.content.env, order.content.ports) == ({"TEST": "test"}, (8888,))
    assert [note for note in translated.notes if "pull_policy" in note]
    assert [note for note in translated.notes if "pricing" in note]
    assert not [note for note in translated.notes if "duration" in note]


@pytest.mark.parametrize(
    ("tier", "ours"),
    [
        (["secured"], ["datacenter", "verified"]),
        (["community", "secured"], None),
        (["community/Secure"], None),
        (["community-2"], ["community"]),
        ("community", ["community"]),
    ],
)
def test_tiers_are_ours(tier: Any, ours: list[str] | None) -> None:
    assert read_icl(document(tier=tier)).policy.get("tier") == ours


def test_a_level_within_a_tier_is_named() -> None:
    assert "'profiles.tier': secured-1 counts as secured." in read_icl(document(tier=["secured-1"])).notes
    with pytest.raises(InvalidField, match="gold"):
        read_icl(document(tier=["gold"]))


def test_a_mode_without_a_meaning_is_named() -> None:
    assert [note for note in read_icl(document(mode="fizz")).notes if "fizz" in note]
    assert not [note for note in read_icl(document()).notes if "mode" in note]


def test_a_file_without_a_duration_is_for_an_hour_and_says_so() -> None:
    text = document()
    del text["profiles"]["duration"]
    translated = read_icl(text)
    assert read_order(translated.fields).duration_s == 3_600
    assert [note for note in translated.notes if "one hour" in note]


def placed(**attributes: str) -> TranslatedOrder:
    text = document()
    text["profiles"]["placement"]["westcoast"]["attributes"] = attributes
    return read_icl(text)


@pytest.mark.parametrize(
    ("region", "ours"),
    [
        ("germany", ["DE"]),
        ("us-east;ap-south;germany", ["AP", "DE", "US"]),
        ("el-salvador", ["SV"]),
        ("korea-south", ["KR"]),
        ("uk", ["GB"]),
        ("na-us-west", ["US"]),
        ("eu-central", ["EU"]),
        ("any", None),
    ],
)
def test_regions_go_by_the_names_of_the_format(region: str, ours: list[str] | None) -> None:
    assert placed(region=region).policy.get("region") == ours


def test_every_region_of_the_format_is_a_country() -> None:
    assert set(COUNTRY_OF_REGION.values()) <= COUNTRIES
    assert len(set(COUNTRY_OF_REGION.values())) == len(COUNTRY_OF_REGION)


def test_a_region_that_is_excluded_stays_so() -> None:
    """Left out, the order could be served where the file forbids it."""
    order = read_order(placed(exclude_region="us-east;china").fields)
    assert order.policy.region is not None
    assert order.policy.region.isdisjoint({"US", "CN", "NA"})
    assert {"DE", "CA", "JP"} <= order.policy.region
    both = read_order(placed(region="eu-west", exclude_region="hungary").fields)
    assert both.policy.region is not None
    assert ("FR" in both.policy.region, "HU" in both.policy.region) == (True, False)
    with pytest.raises(InvalidField, match="excludes all"):
        placed(region="germany", exclude_region="germany")


def test_a_part_of_a_country_is_named_as_the_country() -> None:
    assert "'attributes.region': us-east counts as US: an order knows countries only." in placed(region="us-east").notes


@pytest.mark.parametrize("name", ["desired_provider", "provider_exclude", "desired_fizz", "fizz_exclude", "bandwidth"])
def test_what_only_that_network_knows_is_named(name: str) -> None:
    assert [note for note in placed(**{name: "0x1;0x2"}).notes if f"placement.attributes.{name}" in note]


def test_a_range_of_ports_is_each_of_them() -> None:
    text = document()
    text["services"]["gpu-test"]["expose"] = [{"port": 80, "port_range": "8443-8445", "port_range_as": "8443-8445"}]
    assert read_icl(text).fields["ports"] == [80, 8443, 8444, 8445]
    for wrong in ("8445-8443", "1-65535", "all"):
        text["services"]["gpu-test"]["expose"] = [{"port_range": wrong}]
        with pytest.raises(InvalidField, match="port_range"):
            read_icl(text)


@pytest.mark.parametrize(("duration", "seconds"), [("2min", 120), ("1mon", 30 * 86_400), ("1y", 365 * 86_400)])
def test_durations_have_the_units_of_the_format(duration: str, seconds: int) -> None:
    assert read_order(read_icl(document(duration=duration)).fields).duration_s == seconds


def test_a_share_of_a_card_s_memory_is_named() -> None:
    text = document()
    text["profiles"]["compute"]["gpu-test"]["resources"]["gpu"]["attributes"]["req_vram"] = ">=80"
    assert [note for note in read_icl(text).notes if "req_vram" in note]


def test_a_profile_may_name_its_amounts_alone() -> None:
    text = document(compute={"gpu-test": {"cpu": 2, "memory": "4Gi", "storage": "20Gi"}})
    order = read_order(read_icl(text).fields)
    assert (order.gpus, order.cpu_milli, order.memory_mib, order.disk_mib) == (0, 2_000, 4_096, 20_480)


def test_tiers_have_two_spellings() -> None:
    text = document(tiers=["secured"])
    del text["profiles"]["tier"]
    assert read_icl(text).policy["tier"] == ["datacenter", "verified"]


def test_a_placement_beside_the_profiles_counts_as_well() -> None:
    """Some files have it there."""
    text = document()
    text["placement"] = text["profiles"].pop("placement")
    assert read_icl(text).policy["region"] == ["US"]
    assert not [note for note in read_icl(text).notes if "'placement'" in note]


def test_what_is_unknown_is_named() -> None:
    assert [note for note in read_icl(document(autoscale=True)).notes if "profiles.autoscale" in note]
    assert [note for note in read_icl(document() | {"extra": 1}).notes if "'extra'" in note]
