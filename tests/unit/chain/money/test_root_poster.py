"""When the root of a payout batch goes to the chain."""

from __future__ import annotations

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
