"""When the root of a payout batch goes to the chain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparewatt.chain.money.root_poster import RootAction, next_root_action
from sparewatt.chain.money.settlement_contract import SettlementPool
from sparewatt.store.payouts import PayoutBatchRow


def batch(epoch: int, promised: int) -> PayoutBatchRow:
    return PayoutBatchRow(epoch, 0.0, bytes(32), 1, promised, 1)


def pool(epoch: int, funded: int) -> SettlementPool:
    return SettlementPool(funded=funded, promised=0, paid=0, epoch=epoch)


def test_a_root_is_posted_in_order_within_what_the_pool_holds() -> None:
    moves = {next_root_action(batch(3, 100), pool(2, 100), test_money=test_money) for test_money in (False, True)}
    assert moves == {RootAction.POST}


def test_a_root_that_promises_more_waits_for_funds() -> None:
    assert next_root_action(batch(3, 101), pool(2, 100), test_money=False) is RootAction.WANT_FUNDS


def test_where_money_is_test_money_the_faucet_covers_it() -> None:
    assert next_root_action(batch(3, 101), pool(2, 100), test_money=True) is RootAction.COVER


@pytest.mark.parametrize("funded", [0, 1_000])
def test_a_root_that_the_chain_has_is_not_sent_again(funded: int) -> None:
    assert next_root_action(batch(3, 100), pool(3, funded), test_money=True) is RootAction.WAIT


def test_a_root_never_overtakes_one_that_the_chain_lacks() -> None:
    assert next_root_action(batch(3, 100), pool(1, 1_000), test_money=True) is RootAction.WANT_EARLIER


def test_a_root_waits_while_the_one_before_is_under_delay() -> None:
    action = next_root_action(batch(3, 100), pool(2, 100), test_money=True, is_delayed=True)
    assert action is RootAction.UNDER_DELAY


def test_a_stopped_pool_gets_no_root_and_no_cover() -> None:
    for promised in (100, 200):
        action = next_root_action(batch(3, promised), pool(2, 100), test_money=True, is_stopped=True)
        assert action is RootAction.STOPPED


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_struck_root_waits_for_a_person_whatever_the_chain_says(epoch: int) -> None:
    struck = replace(batch(3, 100), is_struck=True)
    assert next_root_action(struck, pool(epoch, 1_000), test_money=True) is RootAction.STRUCK
