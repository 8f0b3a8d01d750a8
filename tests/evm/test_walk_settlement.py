"""A short random walk; the soak goes farther. Its own file, so that walks run side by side."""

from __future__ import annotations

from tests.evm.walks import SHORT, SettlementWalk

TestSettlementWalk = SettlementWalk.TestCase
TestSettlementWalk.settings = SHORT
