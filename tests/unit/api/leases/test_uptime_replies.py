"""How the uptime of a lease is told: rounded down, as of now, and not before it has started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.api.leases.uptime_replies import percent_text, write_credit, write_uptime
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.uptime_fund import UptimeFundStatus
from sparewatt.market.chain_view import ChainView
from sparewatt.store.uptime_credits import UptimeCreditRow
from tests.unit.market.market_events import ORDER, handed_over, in_blocks
from tests.unit.market.test_lease_history import STARTED, STARTED_S, at

DOLLAR = 10**9


def view_of(*, started: int = len(STARTED), down: bool = False) -> ChainView:
    view = ChainView(depth=1)
    events = in_blocks(STARTED[:started]) + (at(STARTED_S + 90, handed_over(reason=18)) if down else [])
    view.advance(events, to_block=10_000)
    return view


@pytest.mark.parametrize(
    ("ppm", "text"), [(1_000_000, "100"), (999_999, "99.99"), (992_000, "99.20"), (990_000, "99"), (0, "0")]
)
def test_a_percentage_is_rounded_down(ppm: int, text: str) -> None:
    assert percent_text(ppm) == text


def test_an_outage_goes_on_until_now() -> None:
    view = view_of(down=True)
    uptime = write_uptime(view, view.latest.orders[ORDER], unix_s=STARTED_S + 190.7)
    assert uptime is not None
    assert (uptime.percent, uptime.running_s, uptime.down_s, uptime.outages) == ("50", 100, 100, 1)
    assert uptime.as_of == STARTED_S + 190


def test_a_lease_that_has_not_started_has_none() -> None:
    view = view_of(started=4)
    assert write_uptime(view, view.latest.orders[ORDER], unix_s=STARTED_S + 100) is None


def ruled(**changes: Any) -> UptimeCreditRow:
    row = UptimeCreditRow(
        order_id=ORDER,
        lease_id="l",
        account_id=AccountId("acc"),
        ppm=992_000,
        due_nano=50_000_000,
        reason=None,
        ended_unix_s=1.0,
    )
    return replace(row, **changes)


def fund(*, balance: int = DOLLAR, daily: int = DOLLAR, today: int = 0) -> UptimeFundStatus:
    return UptimeFundStatus(Nano(balance), Nano(daily), Nano(today))


@pytest.mark.parametrize(
    ("row", "status", "state", "words"),
    [
        (ruled(paid_nano=50_000_000, paid_unix_s=9.0), None, "credited", "credited $0.05 for 99.20 %"),
        (ruled(), fund(today=DOLLAR - 1), "due", "today's limit is used up"),
        (ruled(), fund(balance=1), "due", "the operator's fund for it is empty"),
        (ruled(), fund(daily=0), "due", "has stopped these credits"),
        (ruled(), fund(), "due", "it is being paid"),
        (ruled(due_nano=0, reason="own_provider"), None, "none", "of your own account"),
        (ruled(due_nano=0, reason="compensated"), None, "none", "bonds have paid you more than was lost"),
        (ruled(due_nano=0, reason="of another release"), None, "none", "nothing is due"),
    ],
)
def test_a_credit_is_told_in_words(
    row: UptimeCreditRow, status: UptimeFundStatus | None, state: str, words: str
) -> None:
    told = write_credit(row, status)
    assert told.state == state
    assert words in told.text
    assert "99.20 %" in told.text
