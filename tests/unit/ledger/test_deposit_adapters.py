"""Requests to the chain: in amounts that its token can hold, under ids that make them idempotent."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField, NoChain
from sparewatt.core.ids import AccountId
from sparewatt.core.money import Nano
from sparewatt.ledger.deposit_adapters import (
    CHAIN_ADAPTER,
    TEST_ADAPTER,
    TestMoneyAdapter,
    adapter_named,
    adapters_for,
    claim_request,
    deposit_request,
)
from sparewatt.store.payouts import ClaimablePayoutRow
from sparewatt.store.request_params import ClaimParams, RequestParams

ANN, HERS = AccountId("acc_ann"), "0x" + "a" * 40


def test_a_deposit_is_requested_in_the_tokens_unit() -> None:
    request = deposit_request(ANN, address=HERS, reference="r", nano=Nano(5_000_001_000))
    assert (request.micro, request.address, request.params) == (5_000_001, HERS, RequestParams())


def test_a_deposit_below_the_tokens_unit_is_refused() -> None:
    with pytest.raises(InvalidField, match="six decimals"):
        deposit_request(ANN, address=HERS, reference="r", nano=Nano(5_000_000_999))


def test_a_deposit_of_one_account_is_never_that_of_another() -> None:
    names = {deposit_request(AccountId(a), address=HERS, reference="r", nano=Nano(1_000)).id for a in ("a", "b")}
    assert len(names) == 2


def test_a_claim_is_for_what_was_not_claimed_and_named_by_the_total() -> None:
    first = claim_request(ANN, ClaimablePayoutRow(HERS, epoch=2, earned_micro=300, claimed_micro=100))
    again = claim_request(ANN, ClaimablePayoutRow(HERS, epoch=2, earned_micro=300, claimed_micro=200))
    later = claim_request(ANN, ClaimablePayoutRow(HERS, epoch=3, earned_micro=301, claimed_micro=300))
    assert (first.micro, first.params) == (200, ClaimParams(2))
    assert first.id == again.id != later.id


def test_a_network_takes_deposits_by_the_rails_that_it_has() -> None:
    rail = TestMoneyAdapter()
    assert set(adapters_for(development=True, chain=rail)) == {TEST_ADAPTER, CHAIN_ADAPTER}
    assert set(adapters_for(development=False, chain=rail)) == {CHAIN_ADAPTER}
    assert adapters_for(development=False) == {}


def test_a_deposit_by_chain_on_a_network_without_one_says_so() -> None:
    with pytest.raises(NoChain, match="A deposit by chain needs a chain"):
        adapter_named(CHAIN_ADAPTER, adapters_for(development=True))
    with pytest.raises(InvalidField, match="Known: test"):
        adapter_named("card", adapters_for(development=True))
