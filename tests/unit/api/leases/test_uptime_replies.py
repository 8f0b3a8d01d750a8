"""How the uptime of a lease is told: rounded down, as of now, and not before it has started."""

from __future__ import annotations

import pytest

from sparewatt.api.leases.uptime_replies import percent_text, write_uptime
from sparewatt.market.chain_view import ChainView
from tests.unit.market.market_events import ORDER, handed_over, in_blocks
from tests.unit.market.test_lease_history import STARTED, STARTED_S, at


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
