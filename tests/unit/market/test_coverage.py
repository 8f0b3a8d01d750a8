"""Terms cover a specification when they promise no less in any member."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.coverage import COMPARED, covers, first_shortfall
from sparewatt.protocol.contracts.match import BidTerms, Specification
from tests.vectors.make import POLICY

SPEC = Specification(b"\1" * 32, 2, 8_000, 32_768, 100_000, 1, 3)
EXACT = BidTerms(2, 0, 0, 8_000, 32_768, 100_000, 0, 1, 0, 0, POLICY.reclaim_s)


def test_exactly_as_much_covers() -> None:
    assert covers(SPEC, EXACT, POLICY)
    assert first_shortfall(SPEC, EXACT, POLICY) is None


@pytest.mark.parametrize("member", [*COMPARED, "reclaim_s"])
def test_one_less_does_not(member: str) -> None:
    less: dict[str, Any] = {member: getattr(EXACT, member) - 1}
    more: dict[str, Any] = {member: getattr(EXACT, member) + 1}
    assert first_shortfall(SPEC, replace(EXACT, **less), POLICY) == member
    assert covers(SPEC, replace(EXACT, **more), POLICY)


@pytest.mark.parametrize("member", ["gpu_model", "vram_gb", "disk_kind", "down_mbps", "up_mbps"])
def test_what_is_only_told_is_not_compared(member: str) -> None:
    told: dict[str, Any] = {member: 1}
    assert covers(SPEC, replace(EXACT, **told), POLICY)


def test_an_order_without_gpus_is_covered_by_processors_alone() -> None:
    assert covers(replace(SPEC, gpus=0), replace(EXACT, gpus=0), POLICY)
