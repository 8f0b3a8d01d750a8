"""What an owner is told of the income by leases."""

from __future__ import annotations

from sparewatt.api.money.lease_income import write_lease_income
from sparewatt.market.lease_income import income_of
from tests.unit.api.leases.test_uptime_replies import view_of
from tests.unit.market.market_events import ALICE, ORDER
from tests.unit.market.test_lease_history import STARTED_S

NODES = {ALICE: "0xnode"}


def test_what_runs_is_listed_with_its_price_and_end() -> None:
    state = view_of().latest
    found = income_of(state.leases[ORDER], state.streams[ORDER], NODES, at=STARTED_S + 180)
    told = write_lease_income(found, NODES)
    assert (told.leases, told.hourly_usd, told.due_usd, told.earned_usd) == (1, "2", "0.1", "0")
    (line,) = told.data
    assert (line.state, line.node, line.left_at) == ("active", "0xnode", None)
    assert line.ends_at is not None


def test_what_was_left_is_said_to_be_left_and_brings_nothing_now() -> None:
    state = view_of(down=True).latest
    told = write_lease_income(income_of(state.leases[ORDER], state.streams[ORDER], NODES, at=STARTED_S + 180), NODES)
    assert (told.data[0].state, told.data[0].left_at, told.hourly_usd) == ("left", STARTED_S + 90, "0")


def test_an_owner_without_providers_has_an_empty_list() -> None:
    told = write_lease_income([], {})
    assert (told.data, told.earned_usd, told.leases) == ([], "0", 0)
