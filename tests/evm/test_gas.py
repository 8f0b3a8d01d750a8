"""The gas of a lease's life stays below its goal."""

from __future__ import annotations

from bench.gas import GOAL, LIFE, Meter, life_of_a_lease, report

from tests.evm.machine import now, set_time
from tests.evm.network import full_network


def test_the_life_of_a_lease_costs_less_than_the_goal() -> None:
    """On a network of its own: metering ends the transaction before, so nothing can be rolled back."""
    at = now()
    meter = Meter()
    life_of_a_lease(full_network(), meter)
    set_time(at)
    total = sum(meter.rows[label] for label in LIFE)
    assert 500_000 < total <= GOAL
    assert f"**{total:,}**" in report(meter)
