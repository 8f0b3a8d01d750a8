"""What clients asked for and nobody served: counted by name, bounded, and hard to inflate."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import KeyId
from sparewatt.inference.fleet.unmet_demand import (
    FORGET_AFTER_S,
    KEYS_COUNTED_MAX,
    NAME_CHARS_MAX,
    NAMES_MAX,
    UnmetDemand,
    WantedModel,
    most_wanted,
)
from sparewatt.testing.clocks import ManualClock

ANN, BOB = KeyId("key_ann"), KeyId("key_bob")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def demand(clock: ManualClock) -> UnmetDemand:
    return UnmetDemand(clock=clock)


def test_a_model_that_more_keys_want_comes_first(demand: UnmetDemand) -> None:
    for _ in range(100):
        demand.note("loud", ANN)
    for key in (ANN, BOB):
        demand.note("wanted", key)
    assert demand.wanted() == [WantedModel("wanted", 2, 2), WantedModel("loud", 100, 1)]


def test_a_name_that_nobody_asks_for_any_more_is_forgotten(demand: UnmetDemand, clock: ManualClock) -> None:
    demand.note("old", ANN)
    clock.advance(FORGET_AFTER_S)
    demand.note("new", ANN)
    assert [wanted.name for wanted in demand.wanted()] == ["new", "old"]
    clock.advance(1.0)
    assert [wanted.name for wanted in demand.wanted()] == ["new"]


def test_one_key_cannot_push_out_what_others_want(demand: UnmetDemand) -> None:
    for key in (ANN, BOB):
        demand.note("wanted", key)
    for number in range(3 * NAMES_MAX):
        demand.note(f"spam-{number}", ANN)
    names = [wanted.name for wanted in demand.wanted()]
    assert len(names) == NAMES_MAX
    assert names[0] == "wanted"
    assert f"spam-{3 * NAMES_MAX - 1}" in names


def test_the_keys_of_a_name_are_bounded(demand: UnmetDemand) -> None:
    for number in range(KEYS_COUNTED_MAX + 10):
        demand.note("m", KeyId(f"key_{number}"))
    assert demand.wanted() == [WantedModel("m", KEYS_COUNTED_MAX + 10, KEYS_COUNTED_MAX)]


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "\x1b[2J", "x" * (NAME_CHARS_MAX + 1)])
def test_what_is_no_name_is_not_shown_to_owners(demand: UnmetDemand, name: str) -> None:
    demand.note(name, ANN)
    assert demand.wanted() == []


def test_counts_of_several_processes_add_up() -> None:
    assert most_wanted([WantedModel("a", 2, 1), WantedModel("b", 1, 2), WantedModel("a", 3, 1)]) == [
        WantedModel("b", 1, 2),
        WantedModel("a", 5, 1),
    ]
