"""A short walk over each part of the contracts: about 5,000 steps together. The soak walks 200,000."""

from __future__ import annotations

from hypothesis import settings

from tests.evm.walks import LeaseWalk, SettlementWalk, StakeWalk

SHORT = settings(max_examples=33, stateful_step_count=51, deadline=None)

SettlementWalk.TestCase.settings = SHORT
StakeWalk.TestCase.settings = SHORT
LeaseWalk.TestCase.settings = SHORT


class TestSettlementWalk(SettlementWalk.TestCase):  # type: ignore[misc]
    """Promises within funds."""


class TestStakeWalk(StakeWalk.TestCase):  # type: ignore[misc]
    """Weights, bonds and slashes add up."""


class TestLeaseWalk(LeaseWalk.TestCase):  # type: ignore[misc]
    """Leases pay from deposits only, and end."""
