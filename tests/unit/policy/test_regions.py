"""Places, groups of them, and their names."""

from __future__ import annotations

import pytest

from sparewatt.policy.regions import COUNTRIES, COVERS, GROUPS, outside, place_of, shortest_names


def test_there_are_as_many_countries_as_in_iso_3166_and_kosovo() -> None:
    assert len(COUNTRIES) == 249 + 1
    assert len(COVERS["EU"] & COUNTRIES) == 27
    assert len(COVERS["EEA"] & COUNTRIES) == 30


def test_no_group_has_the_name_of_a_country() -> None:
    assert COUNTRIES.isdisjoint(GROUPS)


@pytest.mark.parametrize(
    ("region", "place"),
    [
        ("DE", "DE"),
        ("de-berlin", "DE"),
        ("eu-west", "EU"),
        ("us-east", "US"),
        ("UK", "GB"),
        ("na", "NA"),
        ("eu-west-2", None),  # London
        ("local", None),
        ("", None),
        ("DE FR", None),
    ],
)
def test_a_reported_region_is_a_place_or_none(region: str, place: str | None) -> None:
    assert place_of(region) == place


def test_a_group_covers_the_groups_within_it_and_not_those_around_it() -> None:
    assert "EU" in COVERS["EEA"]
    assert "EEA" not in COVERS["EU"]
    assert "EU" not in outside(frozenset({"DE"}))
    assert "DE" not in outside(COVERS["EU"])


def test_places_in_the_fewest_words() -> None:
    assert shortest_names(COVERS["EU"] | COVERS["EEA"] | {"US"}) == ["EEA", "US"]
    assert shortest_names(COVERS["EU"] - {"DE"})[:2] == ["AT", "BE"]
    assert shortest_names(frozenset()) == []
