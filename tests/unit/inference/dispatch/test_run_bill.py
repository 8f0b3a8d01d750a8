"""What a run tells its tab; without one, nothing is billed."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.money import format_usd
from sparewatt.inference.dispatch.model import AttemptRecord, BilledAnswer, DeliveryCount, Outcome
from sparewatt.inference.dispatch.run_bill import RunBill
from sparewatt.inference.text_units import CompletionUnits, units_of
from sparewatt.protocol.openai.chat import Usage
from tests.unit.inference.dispatch.test_job_run_bill import HalvingTab
from tests.unit.inference.nodes import node_id

CLAIMED = Usage(7, 70)


def test_without_a_tab_the_nodes_own_counts_are_told() -> None:
    attempts = [AttemptRecord(node_id(1), 0.0)]
    bill, seen = RunBill(None, attempts), DeliveryCount(chunks=3)
    assert bill.count(seen, CompletionUnits()) is None
    assert attempts[0].delivered is seen
    bill.settle(None)
    bill.note_complete()
    bill.close(Outcome.DONE)
    assert bill.total(CLAIMED) == (CLAIMED, None)
    assert bill.headers() == {}


def test_with_a_tab_its_counts_are_told() -> None:
    tab = HalvingTab()
    attempts = [AttemptRecord(node_id(1), 0.0)]
    bill = RunBill(tab, attempts)
    billed = bill.count(DeliveryCount(), CompletionUnits(units_of("one two three four"), choices=1))
    assert isinstance(billed, BilledAnswer)
    assert bill.total(CLAIMED) == (billed.usage, billed.cost / 10**9)
    assert bill.headers() == {"x-sparewatt-cost": format_usd(billed.cost)}
    bill.close(Outcome.DONE)
    assert tab.closed == [(Outcome.DONE, billed)]


class FullTab(HalvingTab):
    def note_complete(self, attempts: object) -> None:
        raise StoreUnavailable("the disk is full")


def test_books_that_cannot_take_it_are_heard() -> None:
    with pytest.raises(StoreUnavailable):
        RunBill(FullTab(), [AttemptRecord(node_id(1), 0.0)]).note_complete()
