"""A deposit of any size, as transfers of the ledger."""

from __future__ import annotations

from sparewatt.chain.money.settlement_worker import split_deposit
from sparewatt.core.limits import TRANSFER_NANO_MAX as MOST


def test_a_deposit_that_may_be_moved_at_once_is_one_part_under_its_own_name() -> None:
    for nano in (1_000, MOST):
        (part,) = split_deposit("event", nano)
        assert (part.reference, part.nano) == ("event", nano)


def test_a_larger_one_is_several_parts_which_add_up_and_have_names_of_their_own() -> None:
    parts = split_deposit("event", 2 * MOST + 1_000)
    assert [part.nano for part in parts] == [MOST, MOST, 1_000]
    assert [part.reference for part in parts] == ["event", "event/1", "event/2"]


def test_a_deposit_of_nothing_has_no_parts() -> None:
    assert split_deposit("event", 0) == []
