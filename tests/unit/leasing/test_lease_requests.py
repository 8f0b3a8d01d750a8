"""What is refused before a renter's request costs gas, and how often a renter may ask."""

from __future__ import annotations

from dataclasses import replace as with_changes
from typing import Any

import pytest
from msgspec.structs import replace

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import TRANSFER_NANO_MAX
from sparewatt.leasing.lease_requests import (
    ATTEMPTS_MAX,
    ORDER_LIFE_S_MAX,
    ORDERS_PER_HOUR,
    BatchNames,
    LeaseRequestService,
    check_order,
    describe_limit,
    limit_of,
)
from sparewatt.ledger.payouts import NANO_PER_MICRO
from sparewatt.protocol.contracts.match import OrderTerms, Specification
from sparewatt.store.chain_requests import RequestUse
from sparewatt.store.lease_orders import LeaseSpec
from sparewatt.store.request_params import ChainRequestKind, OrderParams
from sparewatt.testing.clocks import InstantClock
from tests.unit.leasing.memory_market import OWNER, Market

NOW = 1_800_000_000.0
TERMS = OrderTerms(
    *(0, 0, 0, 0, 0, 1, 0, 0, 0, 6_000_000, 0, bytes(32), 0, 800, 400, 30, 20, 10, 100, 600, 86_400), (), ()
)
ASKED = OrderParams(TERMS, "0x" + "ab" * 32, int(NOW) + 3_600, 2)
TEN_MINUTES = 1_000_000

REFUSED = [
    ("expired", {"expires_at": int(NOW)}, TEN_MINUTES, "expires_at"),
    ("too far ahead", {"expires_at": int(NOW) + ORDER_LIFE_S_MAX + 1}, TEN_MINUTES, "expires_at"),
    ("too many attempts", {"max_attempts": ATTEMPTS_MAX + 1}, TEN_MINUTES, "max_attempts"),
    ("a negative number of attempts", {"max_attempts": -1}, TEN_MINUTES, "max_attempts"),
    ("a deposit below ten minutes of the highest price", {}, TEN_MINUTES - 1, "deposit"),
    ("no deposit", {"terms": with_changes(TERMS, max_price_uusd=0)}, 0, "deposit"),
]


@pytest.mark.parametrize(
    ("changes", "deposit", "param"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_what_the_contract_would_refuse_is_refused_before(changes: dict[str, Any], deposit: int, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_order(replace(ASKED, **changes), deposit_micro=deposit, unix_s=NOW)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "changes", [{}, {"expires_at": int(NOW) + ORDER_LIFE_S_MAX}, {"max_attempts": ATTEMPTS_MAX}, {"max_attempts": 0}]
)
def test_what_it_takes_is_taken(changes: dict[str, Any]) -> None:
    check_order(replace(ASKED, **changes), deposit_micro=TEN_MINUTES, unix_s=NOW)


def test_auctions_are_limited_per_hour_and_the_end_of_a_lease_never_is() -> None:
    """Whoever used up the limit must still be able to stop paying."""
    limited = {kind for kind in ChainRequestKind if limit_of(kind) is not None}
    assert limited == {ChainRequestKind.ORDER, ChainRequestKind.REOPEN}
    limit = limit_of(ChainRequestKind.ORDER)
    assert limit is not None
    assert (limit.requests, limit.seconds) == (ORDERS_PER_HOUR, 3_600)


def test_a_limit_says_which_it_is_and_when_there_is_room() -> None:
    limit = limit_of(ChainRequestKind.ORDER)
    under_way = describe_limit(RequestUse(16, [3_000.0] * 16), limit, wanted=16)
    assert "16 requests of this account are under way" in under_way.message
    assert under_way.retry_after_s == 5
    left_s = [float(60 * number) for number in range(1, ORDERS_PER_HOUR + 1)]
    hour = describe_limit(RequestUse(0, left_s), limit, wanted=1)
    assert "ordered 60 times in the last hour" in hour.message
    assert "room for one more in 1 min" in hour.message
    assert hour.retry_after_s == 60
    many = describe_limit(RequestUse(0, left_s[5:]), limit, wanted=16)
    assert ("room for 16 more in 16 min" in many.message, many.retry_after_s) == (True, 960)
    assert "under way" in describe_limit(RequestUse(20, []), None, wanted=1).message


@pytest.mark.parametrize("micro", [TRANSFER_NANO_MAX // NANO_PER_MICRO + 1, 2**70])
async def test_more_than_the_books_can_hold_is_refused_and_asks_nothing(micro: int) -> None:
    market = Market()
    market.database.holds.free_nano = 10**30
    service = LeaseRequestService(market.database, InstantClock(), is_test_money=True, free_idle_slices=None)
    asked = replace(ASKED, expires_at=int(service.clock.unix_s()) + 3_600)
    spec = LeaseSpec(ASKED.spec_hash, Specification(b"\1" * 32, 0, 1, 1, 1, 0, 0), "{}")
    batch = BatchNames(reference="huge", name="huge", asked_hash="", spec=spec, lease_ids=("huge",))
    with pytest.raises(InvalidField, match="in parts"):
        await service.order_batch(OWNER, asked, deposit_micro=micro, batch=batch)
    with pytest.raises(InvalidField, match="in parts"):
        await service.top_up(OWNER, "0x" + "ab" * 32, micro=micro, reference="huge")
    assert (market.database.sent.rows, market.database.holds.held) == ({}, {})
