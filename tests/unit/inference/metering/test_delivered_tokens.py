"""Tokens delivered, by model and owner: counted once, from what was billed, whoever stores them."""

from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.core.ids import ModelId
from sparewatt.inference.metering import delivered_tokens
from sparewatt.inference.metering.delivered_tokens import DeliveredTokens
from sparewatt.inference.metering.rules import NOBODY
from sparewatt.store.delivered_tokens import DailyDelivery, DeliveredSum
from tests.unit.ledger.samples import NOW_S, OTHER_OWNER, OWNER, PAYER, closed, delivery

STUB = ModelId("stub")
TODAY = dt.datetime.fromtimestamp(NOW_S, tz=dt.UTC).date()


def test_what_was_billed_counts_for_each_owner_who_brought_a_part() -> None:
    delivered = DeliveredTokens()
    delivered.add(closed("1", delivery(10, 20), delivery(10, 5, owner=OTHER_OWNER)))
    delivered.add(closed("2", delivery(1, 2)))
    assert delivered.of(STUB) == {OWNER: 33, OTHER_OWNER: 15}
    assert delivered.of(ModelId("another")) == {}


def test_a_claim_counts_for_nothing() -> None:
    delivered = DeliveredTokens()
    delivered.add(closed("1", delivery(10, 20, claimed_tokens=10**9)))
    delivered.add(closed("2"))
    assert delivered.of(STUB) == {OWNER: 30}


def test_what_an_owner_buys_from_himself_counts_for_nothing() -> None:
    delivered = DeliveredTokens()
    delivered.add(closed("1", delivery(10**6, 10**6, owner=PAYER), delivery(10, 20)))
    delivered.add(closed("2", delivery(10, 20, owner=NOBODY)))
    assert delivered.of(STUB) == {OWNER: 30}
    assert delivered.take() == [DailyDelivery(STUB, OWNER, TODAY, 30)]


def test_what_is_stored_comes_back_with_that_of_others_and_nothing_is_counted_twice() -> None:
    delivered = DeliveredTokens()
    delivered.add(closed("1", delivery(10, 20)))
    assert delivered.take() == [DailyDelivery(STUB, OWNER, TODAY, 30)]
    assert delivered.take() == []
    delivered.add(closed("2", delivery(1, 2)))  # while the other is being stored
    delivered.load([DeliveredSum(STUB, OWNER, 1030), DeliveredSum(STUB, OTHER_OWNER, 7)])
    assert delivered.of(STUB) == {OWNER: 1033, OTHER_OWNER: 7}
    assert delivered.take() == [DailyDelivery(STUB, OWNER, TODAY, 3)]


def test_what_could_not_be_stored_is_stored_later() -> None:
    delivered = DeliveredTokens()
    delivered.add(closed("1", delivery(10, 20)))
    taken = delivered.take()
    delivered.add(closed("2", delivery(1, 2)))
    delivered.give_back(taken)
    assert delivered.of(STUB) == {OWNER: 33}
    assert delivered.take() == [DailyDelivery(STUB, OWNER, TODAY, 33)]


def test_what_waits_for_the_database_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_tokens, "WAITING_MAX", 2)
    delivered = DeliveredTokens()
    for n in range(5):
        delivered.add(closed(str(n), delivery(10, 20), model=ModelId(f"model {n}")))
    delivered.add(closed("more", delivery(10, 20), model=ModelId("model 1")))
    assert [(each.model, each.tokens) for each in delivered.take()] == [("model 0", 30), ("model 1", 60)]
