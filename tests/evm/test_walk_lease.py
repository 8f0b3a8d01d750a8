"""A short stateful property test; the soak runs a longer one. One file each, so that xdist runs them in parallel."""

from __future__ import annotations

from tests.evm.walks import SHORT, LeaseWalk

TestLeaseWalk = LeaseWalk.TestCase
TestLeaseWalk.settings = SHORT
