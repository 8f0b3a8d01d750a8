"""A name belongs to the account whose node bore it first."""

from __future__ import annotations

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.inference.fleet.name_registry import NameRegistry

ANN, BOB = AccountId("acc_ann"), AccountId("acc_bob")
ONE, TWO, THREE = (NodeId(f"0x{digit * 40}") for digit in "123")


def test_another_accounts_node_does_not_get_a_name_that_is_taken() -> None:
    names = NameRegistry()
    assert names.claim(ONE, ANN, "attic") == "attic"
    assert names.claim(TWO, BOB, "Attic") == "Attic~222222"
    assert names.claim(THREE, ANN, "attic") == "attic"


def test_a_node_keeps_its_name_when_it_reports_again() -> None:
    names = NameRegistry()
    assert [names.claim(ONE, ANN, "attic") for _ in range(2)] == ["attic", "attic"]
    assert [names.claim(TWO, BOB, "attic") for _ in range(2)] == ["attic~222222"] * 2


def test_a_name_that_nobody_bears_any_more_is_free() -> None:
    names = NameRegistry()
    names.claim(ONE, ANN, "attic")
    names.claim(ONE, ANN, "cellar")
    assert names.claim(TWO, BOB, "attic") == "attic"


def test_a_long_name_stays_within_bounds() -> None:
    names = NameRegistry()
    names.claim(ONE, ANN, "a" * NAME_CHARS_MAX)
    assert len(names.claim(TWO, BOB, "a" * NAME_CHARS_MAX)) == NAME_CHARS_MAX
