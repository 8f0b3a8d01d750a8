"""What an owner reads after joining: the network's names of the models, or what would be worth serving."""

from __future__ import annotations

import pytest

from sparewatt.node.network_models import NOTHING_AFTER_S, NameNotices, name_sentences
from sparewatt.protocol.link.frames import AssignedName, ModelNames
from sparewatt.testing.clocks import ManualClock

FILE = "SmolLM2-135M-Instruct.Q4_1"
WHY = "0.8 GB of weights are about 1.3 billion parameters, and llama-3.1-70b has 70.6"
LIAR = AssignedName("unverified/llama3.1:70b", "llama3.1:70b", WHY)
OURS = AssignedName("smollm2-135m", FILE)


@pytest.mark.parametrize(
    ("names", "sentences"),
    [
        (ModelNames((OURS, AssignedName("m", "m")), ("x",)), [f"serves smollm2-135m ({FILE}), m"]),
        (ModelNames(), ["serves no model of the network yet"]),
        (
            ModelNames((), ("a", "b", "c", "d", "e", "f")),
            ["serves no model of the network yet", "asked for and served by nobody: a, b, c, d, e"],
        ),
        (
            ModelNames((LIAR,), ("a",)),
            [
                "serves no model of the network yet",
                f"llama3.1:70b is called unverified/llama3.1:70b: {WHY}",
                "asked for and served by nobody: a",
            ],
        ),
        (ModelNames((OURS, LIAR)), [f"serves smollm2-135m ({FILE})", f"llama3.1:70b is called {LIAR.name}: {WHY}"]),
    ],
)
def test_what_is_said_of_names(names: ModelNames, sentences: list[str]) -> None:
    assert name_sentences(names) == sentences


class Owner:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.heard: list[str] = []
        self.notices = NameNotices(self.heard.append, clock=self.clock)

    def hears(self, *models: AssignedName) -> list[str]:
        """What is new by these names."""
        before = len(self.heard)
        self.notices.on_names(ModelNames(models, ("wanted",)))
        return self.heard[before:]


def test_names_are_told_once_however_many_links_bring_them() -> None:
    owner = Owner()
    assert owner.hears(OURS) == [f"serves smollm2-135m ({FILE})"]
    assert owner.hears(OURS) == []
    assert owner.hears(AssignedName("m", "m")) == ["serves m"]


def test_a_node_that_has_not_looked_at_its_server_yet_says_nothing() -> None:
    owner = Owner()
    assert owner.hears() == []
    owner.clock.advance(NOTHING_AFTER_S - 1)
    assert owner.hears(OURS) == [f"serves smollm2-135m ({FILE})"]
    owner.clock.advance(NOTHING_AFTER_S)
    assert len(owner.heard) == 1


def test_a_node_without_a_model_learns_what_is_wanted() -> None:
    owner = Owner()
    owner.hears()
    owner.clock.advance(NOTHING_AFTER_S)
    assert owner.heard == ["serves no model of the network yet", "asked for and served by nobody: wanted"]
    assert owner.hears() == []


def test_a_price_that_keeps_requests_away_is_told_when_it_begins_and_kept_for_who_asks() -> None:
    owner = Owner()
    dear, dearer = (AssignedName("smollm2-135m", FILE, price_notice=notice) for notice in ("too dear", "far too dear"))
    owner.hears(OURS)
    assert owner.hears(dear) == [f"{FILE}: too dear"]
    assert owner.hears(dearer) == []
    assert owner.notices.prices == {FILE: "far too dear"}
    assert owner.hears(OURS) == []
    assert owner.notices.prices == {}
    assert owner.hears(dear) == [f"{FILE}: too dear"], "it has begun again"
