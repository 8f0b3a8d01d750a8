"""A chain that is started over: every nano-dollar on it goes back to its account, none is made or lost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId
from sparewatt.ledger import chart
from sparewatt.ledger.chain_restart import POCKETS, restart_transfers
from sparewatt.store.chain_restarts import MoneyOnChain

ANN, BOB = AccountId("acc_ann"), AccountId("acc_bob")


def money(
    balances: dict[str, int] | None = None,
    *,
    unclaimed: dict[AccountId, int] | None = None,
    rewards: dict[AccountId, int] | None = None,
    unbooked: dict[AccountId, int] | None = None,
) -> MoneyOnChain:
    return MoneyOnChain(balances or {}, unclaimed or {}, rewards or {}, unbooked or {})


def posted(on_chain: MoneyOnChain) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for transfer in restart_transfers(1, on_chain, 0.0):
        assert sum(nano for _, nano in transfer.lines) == 0
        assert transfer.nano > 0
        for name, nano in transfer.lines:
            sums[name] += nano
    return {name: nano for name, nano in sums.items() if nano}


def test_rewards_that_were_not_claimed_are_earnings_and_those_of_strangers_leave_the_books() -> None:
    changes = posted(money({chart.REWARD_PAYOUTS: 9_000, chart.PAYOUTS: 1_000}, unclaimed={ANN: 1}, rewards={ANN: 4}))
    assert changes == {
        chart.REWARD_PAYOUTS: -9_000,
        chart.PAYOUTS: -1_000,
        chart.earned_by(ANN): 5_000,
        chart.DEPOSITS: 5_000,
    }


def test_without_money_on_the_chain_nothing_is_posted() -> None:
    assert restart_transfers(1, money(), 0.0) == []


@pytest.mark.parametrize("pocket", POCKETS)
def test_every_pocket_becomes_credits(pocket: str) -> None:
    name = chart.pocket_of(pocket, ANN)
    assert posted(money({name: 7_000})) == {name: -7_000, chart.credits_of(ANN): 7_000}


def test_what_came_from_promo_credits_becomes_promo_credits_and_never_paid_ones() -> None:
    wallet, escrow = chart.pocket_of("wallet", ANN), chart.pocket_of("escrow", ANN)
    changes = posted(money({wallet: 3_000, escrow: 4_000, chart.given_to(ANN): 5_000}))
    assert changes[chart.promo_of(ANN)] == 5_000
    assert changes[chart.credits_of(ANN)] == 2_000
    assert changes[chart.given_to(ANN)] == -5_000
    assert changes[chart.DEPOSITS] == 5_000


def test_promo_credits_that_a_lease_used_up_do_not_come_back() -> None:
    changes = posted(money({chart.pocket_of("bond", ANN): 2_000, chart.given_to(ANN): 5_000}))
    assert (changes[chart.promo_of(ANN)], changes[chart.GRANTS]) == (2_000, 3_000)
    assert chart.credits_of(ANN) not in changes


def test_payouts_that_were_not_claimed_are_earnings_again() -> None:
    changes = posted(money({chart.PAYOUTS: 9_000}, unclaimed={ANN: 4, BOB: 5}))
    assert changes == {chart.PAYOUTS: -9_000, chart.earned_by(ANN): 4_000, chart.earned_by(BOB): 5_000}


def test_payouts_that_were_claimed_have_left() -> None:
    """Books of an older release keep them in the account of payouts."""
    changes = posted(money({chart.PAYOUTS: 9_000}, unclaimed={ANN: 4}, unbooked={BOB: 5}))
    assert changes == {chart.PAYOUTS: -9_000, chart.earned_by(ANN): 4_000, chart.credits_of(BOB): 5_000}


def test_no_more_is_earned_again_than_the_books_have_in_payouts() -> None:
    changes = posted(money({chart.PAYOUTS: 3_000}, unclaimed={ANN: 4}))
    assert changes == {chart.PAYOUTS: -3_000, chart.earned_by(ANN): 3_000}


def test_tokens_that_the_books_did_not_know_come_from_outside() -> None:
    assert posted(money(unbooked={ANN: 5})) == {chart.DEPOSITS: -5_000, chart.credits_of(ANN): 5_000}


def test_each_start_over_has_causes_of_its_own() -> None:
    on_chain = money({chart.pocket_of("wallet", ANN): 1_000, chart.PAYOUTS: 1_000})
    first, second = ({transfer.cause for transfer in restart_transfers(number, on_chain, 0.0)} for number in (1, 2))
    assert len(first) == len(second) == 2
    assert first.isdisjoint(second)


AMOUNTS = st.integers(0, 10**15)


@given(
    st.dictionaries(st.tuples(st.sampled_from((*POCKETS, "given")), st.sampled_from((ANN, BOB))), AMOUNTS),
    AMOUNTS,
    st.dictionaries(st.sampled_from((ANN, BOB)), st.integers(0, 10**9)),
    st.dictionaries(st.sampled_from((ANN, BOB)), st.integers(-5, 10**9)),
)
def test_the_old_accounts_are_empty_and_the_sums_are_kept(
    pockets: dict[tuple[str, AccountId], int],
    payouts: int,
    unclaimed: dict[AccountId, int],
    unbooked: dict[AccountId, int],
) -> None:
    balances = {f"{kind}:{account}": nano for (kind, account), nano in pockets.items()} | {chart.PAYOUTS: payouts}
    changes = posted(money(balances, unclaimed=unclaimed, unbooked=unbooked))
    assert all(nano + changes.get(name, 0) == 0 for name, nano in balances.items())
    for account in (ANN, BOB):
        back = changes.get(chart.credits_of(account), 0) + changes.get(chart.promo_of(account), 0)
        had = sum(nano for (kind, owner), nano in pockets.items() if kind != "given" and owner == account)
        assert back == had + max(0, unbooked.get(account, 0)) * 1000
