"""The books against the chain: a difference of one unit is found, and named."""

from __future__ import annotations

from sparewatt.core.ids import AccountId
from sparewatt.ledger.chain_audit import balance_differences, pocket_differences, pool_differences, uncovered_nano
from sparewatt.store.chain_audit import BooksOwe, PoolFlows
from sparewatt.store.pockets import OwnedPocketRow, Pocket

ANN, HER = AccountId("acc_ann"), "0x" + "a" * 40
LEASE = "0x" + "1" * 64
ROWS = [OwnedPocketRow(ANN, Pocket.WALLET, HER, HER, 5), OwnedPocketRow(ANN, Pocket.ESCROW, LEASE, HER, 7)]
ON_CHAIN = {(Pocket.WALLET, HER): (ANN, 5), (Pocket.ESCROW, LEASE): (ANN, 7), (Pocket.BOND, HER): (ANN, 0)}


def test_books_that_agree_have_no_differences() -> None:
    assert pocket_differences(ROWS, ON_CHAIN) == []
    assert balance_differences(ROWS, {"wallet:acc_ann": 5_000, "escrow:acc_ann": 7_000}) == []


def test_a_unit_too_much_or_too_little_is_found_and_named() -> None:
    for key, (account, micro) in ON_CHAIN.items():
        for change in (1, -1):
            (found,) = pocket_differences(ROWS, ON_CHAIN | {key: (account, micro + change)})
            assert (found.account, found.pocket, found.id) == (ANN, key[0].value, key[1])
            assert found.chain_micro - found.books_micro == change


def test_a_pocket_that_only_the_books_have_is_a_difference() -> None:
    (found,) = pocket_differences(ROWS, {(Pocket.WALLET, HER): (ANN, 5)})
    assert (found.pocket, found.books_micro, found.chain_micro) == ("escrow", 7, 0)


def test_a_balance_that_is_not_the_sum_of_its_pockets_is_a_difference() -> None:
    (found,) = balance_differences(ROWS, {"wallet:acc_ann": 5_000, "escrow:acc_ann": 6_000})
    assert (found.account, found.pocket, found.id) == (ANN, "escrow", "ledger")
    (found,) = balance_differences([], {"owed:acc_ann": 1_000})
    assert (found.pocket, found.books_micro) == ("owed", 1)


def test_the_pool_is_what_came_in_less_exits_and_claims() -> None:
    flows = PoolFlows(deposited=100, funded=20, exited=30, claimed=40)
    assert pool_differences(flows, funded=90, paid=40) == []
    (found,) = pool_differences(flows, funded=91, paid=40)
    assert (found.account, found.pocket, found.books_micro, found.chain_micro) == (None, "pool", 50, 51)


def test_what_the_books_owe_is_covered_by_the_pool_holds_and_money_from_elsewhere() -> None:
    owe = BooksOwe(owed=100_000, held=20_000, elsewhere=30_000)
    assert uncovered_nano(owe, pool_micro=50) == 0
    assert uncovered_nano(owe, pool_micro=49) == 1_000
