"""Which leases of a name end first, and how many are ordered anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.core.ids import AccountId
from sparewatt.leasing.changes.scaling import plan_scale
from sparewatt.market.chain_records import LeaseState
from sparewatt.store.chain_requests import ChainRequestState
from sparewatt.store.lease_orders import LeaseOrderRow
from tests.unit.leasing.changes.test_change_rules import LEASE, SPECIFICATION


def row(lease_id: str, created: float, **changes: Any) -> LeaseOrderRow:
    usual = LeaseOrderRow(
        lease_id=lease_id,
        account_id=AccountId("acc"),
        batch="b",
        name="n",
        asked_hash="",
        spec_hash="0x",
        specification=SPECIFICATION,
        image="a",
        secrets=(),
        content=None,
        created_unix_s=created,
        deposit_micro=1,
        params=None,
        state=ChainRequestState.DONE,
        reason=None,
        tx=None,
        order_id=f"0x{lease_id}",
    )
    return replace(usual, **changes)


ROWS = [row("old", 1.0), row("new", 3.0), row("mid", 2.0), row("open", 0.0)]
LEASES = {f"0x{name}": replace(LEASE, state=LeaseState.ACTIVE) for name in ("old", "new", "mid")}


def test_what_has_no_provider_ends_first_then_the_newest() -> None:
    found = plan_scale(ROWS, LEASES, count=1)
    assert [each.lease_id for each in found.ended] == ["open", "new", "mid"]
    assert ([each.lease_id for each in found.kept], found.ordered) == (["old"], 0)


def test_a_lease_that_waits_for_its_start_ends_before_one_that_runs() -> None:
    pending = {**LEASES, "0xold": replace(LEASE, state=LeaseState.PENDING)}
    assert [each.lease_id for each in plan_scale(ROWS[:3], pending, count=2).ended] == ["old"]


def test_the_last_of_a_batch_ends_first() -> None:
    rows = [row("a", 1.0), row("a-2", 1.0), row("a-10", 1.0)]
    assert [each.lease_id for each in plan_scale(rows, {}, count=1).ended] == ["a-10", "a-2"]


@pytest.mark.parametrize(("count", "ordered", "ended"), [(4, 0, 0), (6, 2, 0), (0, 0, 4)])
def test_the_count_is_reached(count: int, ordered: int, ended: int) -> None:
    found = plan_scale(ROWS, LEASES, count=count)
    assert (found.ordered, len(found.ended)) == (ordered, ended)
