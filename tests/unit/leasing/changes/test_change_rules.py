"""What a change of a running lease costs, what a cap refuses, and what a provider would not accept."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from sparewatt.core.errors import InvalidField, MaxSpendReached, UnprocessableContent
from sparewatt.leasing.changes.change_rules import (
    ChangePlan,
    LeaseChange,
    checked_cap,
    plan_change,
    require_acceptable,
)
from sparewatt.market.accrual import PaymentStream
from sparewatt.market.chain_records import LeaseRecord, LeaseState
from sparewatt.protocol.contracts.match import Specification
from sparewatt.protocol.link.lease_offer import LeaseOffer
from tests.order_terms import order_terms

RATE = 3_600_000
"""µUSD per hour: 1,000 a second."""
TERMS = order_terms(max_price_uusd=2 * RATE, duration_s=3_600)
STREAM = PaymentStream(3_600_000, rate_uusd=RATE, since=0, end_at=3_600)
LEASE = LeaseRecord(
    lease_id="0x",
    renter="0x",
    state=LeaseState.ACTIVE,
    provider="0xa",
    term=1,
    position=0,
    rate_uusd=RATE,
    locked_uusd=0,
    confirm_by=0,
    created_at=0,
)
SPECIFICATION = Specification(b"\1" * 32, 0, 1_000, 1_024, 1_024, 0, 0)
OFFER = LeaseOffer(cpu_hourly_uusd=RATE, longest_s=10_000)


def plan(
    change: LeaseChange, *, stream: PaymentStream = STREAM, lease: LeaseRecord = LEASE, at: int = 600
) -> ChangePlan:
    return plan_change(change, lease, stream, TERMS, at=at)


def test_an_extension_adds_to_what_is_left_and_to_the_deposit() -> None:
    found = plan(LeaseChange(added_s=600))
    assert (found.duration_s, found.ends_at, found.rate_uusd) == (3_600, 4_200, RATE)
    assert found.top_up_uusd == 600_000 + 60_000, "ten minutes, and one for the time until it is accepted"


def test_a_deposit_that_is_large_enough_is_left_alone() -> None:
    assert plan(LeaseChange(added_s=600), stream=replace(STREAM, deposit_uusd=9_000_000)).top_up_uusd == 0


def test_a_deposit_that_did_not_cover_the_duration_is_filled_by_what_is_added_only() -> None:
    small = replace(STREAM, deposit_uusd=1_000_000)
    assert plan(LeaseChange(added_s=600), stream=small).top_up_uusd == 660_000


def test_a_shorter_or_cheaper_lease_needs_nothing() -> None:
    assert plan(LeaseChange(left_s=60)).top_up_uusd == 0
    assert plan(LeaseChange(rate_uusd=RATE // 2)).cost_uusd == 1_500_000


@pytest.mark.parametrize("change", [LeaseChange(rate_uusd=2 * RATE + 1), LeaseChange(added_s=400 * 86_400)])
def test_terms_that_no_contract_takes_are_refused(change: LeaseChange) -> None:
    with pytest.raises(InvalidField):
        plan(change)


@pytest.mark.parametrize("state", [each for each in LeaseState if each is not LeaseState.ACTIVE])
def test_only_a_lease_that_runs_is_changed(state: LeaseState) -> None:
    with pytest.raises(UnprocessableContent):
        plan(LeaseChange(added_s=600), lease=replace(LEASE, state=state))


def test_a_providers_offer_speaks_before_money_is_spent() -> None:
    wanted = plan(LeaseChange(added_s=600))
    require_acceptable(wanted, OFFER, SPECIFICATION, ordered_s=3_600)
    dearer, shorter = (
        msgspec.structs.replace(OFFER, cpu_hourly_uusd=RATE + 1),
        msgspec.structs.replace(OFFER, longest_s=3_599),
    )
    for offer in (None, dearer, shorter, msgspec.structs.replace(OFFER, cpu_hourly_uusd=None)):
        with pytest.raises(UnprocessableContent):
            require_acceptable(wanted, offer, SPECIFICATION, ordered_s=3_600)


def test_a_cap_is_kept_to_the_unit_until_it_is_raised() -> None:
    assert checked_cap(put_in_uusd=5, adding_uusd=5, cap_uusd=10, raised_uusd=None) == 10
    assert checked_cap(put_in_uusd=5, adding_uusd=6, cap_uusd=10, raised_uusd=11) == 11
    assert checked_cap(put_in_uusd=5, adding_uusd=10**12, cap_uusd=None, raised_uusd=None) is None
    for cap, raised in ((10, None), (None, 10), (20, 10)):
        with pytest.raises(MaxSpendReached):
            checked_cap(put_in_uusd=5, adding_uusd=6, cap_uusd=cap, raised_uusd=raised)
