from __future__ import annotations

import pytest

from sparewatt.core.errors import RateLimited
from sparewatt.core.ids import AccountId
from sparewatt.core.rng import seeded
from sparewatt.leasing.access.tickets import (
    TICKET_LIFE_S,
    TICKETS_PER_ACCOUNT_MAX,
    AccessTickets,
    process_of,
)
from sparewatt.testing.clocks import ManualClock

ME, OTHER = AccountId("acc_me"), AccountId("acc_other")


def tickets(clock: ManualClock | None = None) -> AccessTickets:
    return AccessTickets(process=3, clock=clock or ManualClock(), rng=seeded(1))


def test_a_ticket_is_good_once() -> None:
    made = tickets()
    ticket = made.issue(ME, "lease-1")
    use = made.redeem(ticket)
    assert use is not None
    assert (use.account, use.lease_id) == (ME, "lease-1")
    assert made.redeem(ticket) is None


def test_a_ticket_is_good_for_half_a_minute() -> None:
    clock = ManualClock()
    made = tickets(clock)
    early, late = made.issue(ME, "a"), made.issue(ME, "a")
    clock.advance(TICKET_LIFE_S - 1)
    assert made.redeem(early) is not None
    clock.advance(1)
    assert made.redeem(late) is None


def test_no_two_tickets_are_alike_and_a_made_up_one_opens_nothing() -> None:
    made = tickets()
    assert len({made.issue(ME, "a") for _ in range(20)}) == 20
    assert made.redeem("3." + "0" * 48) is None


def test_an_account_cannot_hoard_tickets_and_old_ones_make_room() -> None:
    clock = ManualClock()
    made = tickets(clock)
    for _ in range(TICKETS_PER_ACCOUNT_MAX):
        made.issue(ME, "a")
    with pytest.raises(RateLimited):
        made.issue(ME, "a")
    made.issue(OTHER, "b")
    clock.advance(TICKET_LIFE_S)
    made.issue(ME, "a")
    assert len(made._open) == 1


def test_a_ticket_tells_which_process_made_it() -> None:
    assert process_of(tickets().issue(ME, "a")) == 3


@pytest.mark.parametrize("text", ["", "3", "3.", ".abc", "x.abc", "3.a/b", "1234.abc", "3." + "a" * 100, "٣.abc"])
def test_what_is_no_ticket_names_no_process(text: str) -> None:
    assert process_of(text) is None
