from __future__ import annotations

import pytest

from sparewatt.policy.regions import COUNTRIES, PLACES
from sparewatt.policy.zones import (
    DISTANCE_MS,
    UNKNOWN_ZONE,
    ZONE_ID,
    ZONES,
    ZONES_MAX,
    distances_from,
    zone_of_country,
    zone_of_region,
    zones_of_place,
)

KNOWN = range(1, len(ZONES) + 1)
RTT_ROW_MS_MAX = 510


def test_every_country_has_a_zone() -> None:
    assert all(zone_of_country(country) in KNOWN for country in COUNTRIES)


def test_distances_are_symmetric_and_a_zone_is_nearest_to_itself() -> None:
    for a in KNOWN:
        assert DISTANCE_MS[a][a] == min(DISTANCE_MS[a])
        assert all(DISTANCE_MS[a][b] == DISTANCE_MS[b][a] for b in KNOWN)


def test_distances_fit_a_byte_on_chain() -> None:
    assert len(DISTANCE_MS) == ZONES_MAX
    assert all(0 < ms <= RTT_ROW_MS_MAX for row in DISTANCE_MS for ms in row)


def test_no_detour_is_much_shorter_than_the_direct_way() -> None:
    """A typing error in the table would make one."""
    for a in KNOWN:
        for b in KNOWN:
            assert all(DISTANCE_MS[a][b] <= 1.5 * (DISTANCE_MS[a][c] + DISTANCE_MS[c][b]) for c in KNOWN)


@pytest.mark.parametrize(
    ("region", "zone"),
    [
        ("DE", "europe-west"),
        ("de-berlin", "europe-west"),
        ("US", "us-central"),
        ("us-east", "us-east"),
        ("us-west", "us-west"),
        ("us-ohio", "us-central"),
        ("eu-north", "europe-north"),
        ("ap-south", "south-asia"),
        ("JP", "japan-korea"),
    ],
)
def test_a_nodes_region_stands_for_one_zone(region: str, zone: str) -> None:
    assert zone_of_region(region) == ZONE_ID[zone]


@pytest.mark.parametrize("region", ["", "local", "EU", "AP", "eu-west-2", "everywhere", "DE,US,JP", "us-east us-west"])
def test_a_region_of_several_zones_or_of_none_is_unknown(region: str) -> None:
    assert zone_of_region(region) == UNKNOWN_ZONE


@pytest.mark.parametrize("place", sorted(PLACES))
def test_an_unknown_zone_is_never_nearer_than_a_known_one(place: str) -> None:
    unknown, *others = distances_from(place)
    assert unknown == max(others)
    assert all(distances_from(place)[number] == unknown for number in range(len(ZONES) + 1, ZONES_MAX))


def test_the_distance_to_a_group_is_that_to_its_nearest_part() -> None:
    assert zones_of_place("US") == {ZONE_ID["us-east"], ZONE_ID["us-central"], ZONE_ID["us-west"]}
    from_us = distances_from("US")
    assert from_us[ZONE_ID["japan-korea"]] == DISTANCE_MS[ZONE_ID["us-west"]][ZONE_ID["japan-korea"]]
    assert from_us[ZONE_ID["europe-west"]] == DISTANCE_MS[ZONE_ID["us-east"]][ZONE_ID["europe-west"]]
