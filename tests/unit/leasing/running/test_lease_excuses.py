"""A node may break off its answers for a lease that the chain has just given it, and for no other."""

from __future__ import annotations

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.leasing.running.lease_excuses import SLACK_S, LeaseExcuses
from sparewatt.market.chain_records import MarketState
from sparewatt.protocol.contracts.chain_events import ChainEvent
from sparewatt.testing.clocks import ManualClock
from tests.unit.leasing.running.placed import (
    CLOSED,
    CONFIRMED,
    ORDER,
    PAUSED,
    STAND_IN_KEY,
    VACATED,
    WINNER_KEY,
    state,
)

WINNER = NodeId(WINNER_KEY.address)


def excuses(found: MarketState | None, *, after_s: float = 0.0) -> LeaseExcuses:
    confirm_by = found.leases[ORDER].confirm_by if found is not None else 0
    return LeaseExcuses(lambda: found, ManualClock(unix_s=confirm_by + after_s))


@pytest.mark.parametrize("events", [(), (CONFIRMED,)], ids=["pending", "active"])
def test_its_own_new_lease_excuses_a_node(events: tuple[ChainEvent, ...]) -> None:
    assert excuses(state(*events)).covers(WINNER, ORDER)


@pytest.mark.parametrize("events", [(CONFIRMED, PAUSED), (CONFIRMED, CLOSED), (VACATED,)])
def test_a_lease_that_does_not_run_excuses_nobody(events: tuple[ChainEvent, ...]) -> None:
    assert not excuses(state(*events)).covers(WINNER, ORDER)


def test_nobody_is_excused_by_anothers_lease_an_old_one_or_none() -> None:
    found = state()
    assert not excuses(found).covers(NodeId(STAND_IN_KEY.address), ORDER)
    assert not excuses(found).covers(WINNER, "0x" + "9" * 64)
    assert not excuses(found).covers(WINNER, "")
    assert excuses(found, after_s=SLACK_S).covers(WINNER, ORDER)
    assert not excuses(found, after_s=SLACK_S + 1).covers(WINNER, ORDER)
    assert not excuses(None).covers(WINNER, ORDER), "a gateway without a market believes nobody"
