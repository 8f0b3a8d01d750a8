"""Attacks with pauses, top-ups and the agreed time: what a party can hold up, for how long, and what it pays for it.

The leases here run at $1 an hour with a grace of ten minutes and thirty seconds for a start.
"""

from __future__ import annotations

import pytest

from sparewatt.market.rule import BidBook
from sparewatt.protocol.contracts.match import Down
from tests.evm.auction import RENTER, STRANGER, Order, place_order
from tests.evm.machine import now, refused, wait
from tests.evm.network import TREASURY, USD, Network

PENDING, ACTIVE, PAUSED, UNPLACED, CLOSED, VACANT = range(1, 7)
BY_RENTER, BY_DURATION, BY_RECLAIM, BY_EMPTY = range(1, 5)
NO_START, DOWN, RESIGNED = 16, 17, 18
MINUTE = USD // 60
BOND = 100 * USD


def running(network: Network, *, deposit: int = USD, duration_s: int = 86_400) -> tuple[Order, BidBook]:
    order = place_order(network, deposit=deposit, duration_s=duration_s)
    return order, order.started({0: 2 * USD, 1: USD})


def emptied(network: Network) -> tuple[Order, BidBook]:
    """Paused because the deposit is used up."""
    order, book = running(network)
    wait(3600)
    network.escrow.settle(order.order_id)
    return order, book


def bond_of(order: Order, provider: str) -> tuple[int, int]:
    """Free and locked."""
    free, locked, *_ = order.network.stakes.bond_of(provider)
    return free, locked


def paid_to(order: Order, provider: str) -> int:
    owed: int = order.network.escrow.owed(provider) + order.network.escrow.owed(TREASURY)
    return owed


def close(order: Order, reason: int, *, who: str = STRANGER) -> None:
    order.network.orders.close(order.order_id, reason, who=who)


@pytest.mark.parametrize("waited", [0, 600, 601, 10**6])
def test_nobody_closes_a_lease_as_empty_that_was_topped_up_within_the_grace(network: Network, waited: int) -> None:
    """The attacker is the first to act after the top-up, however late the renter resumes."""
    order, _ = emptied(network)
    wait(600)
    network.escrow.top_up(order.order_id, MINUTE, who=RENTER.address)
    wait(waited)
    with refused("NOT_EMPTY" if waited else "GRACE_NOT_OVER"):
        close(order, BY_EMPTY)
    network.orders.resume(order.order_id, who=STRANGER)
    order.confirm()
    assert order.lease["state"] == ACTIVE


def test_a_top_up_after_the_grace_races_the_close_and_loses_nothing(network: Network) -> None:
    order, _ = emptied(network)
    wait(601)
    close(order, BY_EMPTY)
    with refused("NO_SUCH_LEASE"):
        network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    assert order.lease["state"] == CLOSED


def test_a_minute_of_deposit_does_not_bind_a_provider_for_ever(network: Network) -> None:
    """Someone pays one minute into an empty lease and never resumes it: the provider does, and goes for nothing."""
    order, book = emptied(network)
    provider = order.provider.address
    network.fund(STRANGER)
    network.escrow.top_up(order.order_id, MINUTE, who=STRANGER)
    network.orders.resume(order.order_id, who=provider)
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START, who=provider)
    assert bond_of(order, provider) == (BOND, 0)
    assert order.lease["state"] == VACANT


def test_a_minute_of_deposit_is_paid_out_to_a_provider_that_goes_on(network: Network) -> None:
    order, _ = emptied(network)
    provider = order.provider.address
    before = paid_to(order, provider)
    for _ in range(3):
        network.escrow.top_up(order.order_id, MINUTE, who=RENTER.address)
        network.orders.resume(order.order_id, who=provider)
        order.confirm()
        wait(60)
        network.escrow.settle(order.order_id)
        assert (order.lease["state"], order.lease["pause_reason"]) == (PAUSED, BY_EMPTY)
    assert paid_to(order, provider) - before == 3 * MINUTE


def test_an_empty_pause_is_not_left_for_nothing_before_the_lease_has_run_again(network: Network) -> None:
    order, book = emptied(network)
    provider = order.provider.address
    network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    wait(10_000)
    with refused("PAUSED_AS_EMPTY"):
        order.hand_over(book, RESIGNED, who=provider)
    with refused("NOT_PENDING"):
        order.hand_over(book, NO_START, who=provider)
    network.orders.resume(order.order_id, who=STRANGER)
    order.confirm()
    order.hand_over(book, RESIGNED, who=provider)
    assert network.escrow.deposit_of(order.order_id) == 2 * USD, "an hour of pay for leaving a running lease"


def test_a_renter_that_pauses_again_and_again_binds_nobody(network: Network) -> None:
    """It resumes before each grace is over. The provider need not confirm, and goes for nothing."""
    order, book = running(network)
    provider = order.provider.address
    for _ in range(3):
        network.orders.pause(order.order_id, who=RENTER.address)
        wait(600)
        with refused("GRACE_NOT_OVER"):
            order.hand_over(book, RESIGNED, who=provider)
        network.orders.resume(order.order_id, who=RENTER.address)
        order.confirm()
    network.orders.pause(order.order_id, who=RENTER.address)
    wait(600)
    network.orders.resume(order.order_id, who=RENTER.address)
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START, who=provider)
    assert bond_of(order, provider) == (BOND, 0)


def test_a_renter_that_resumes_just_before_its_provider_leaves_takes_no_bond(network: Network) -> None:
    """It sees the resignation on its way. The grace is over, so the provider goes for nothing until it starts again."""
    order, book = running(network)
    provider = order.provider.address
    network.orders.pause(order.order_id, who=RENTER.address)
    wait(601)
    network.orders.resume(order.order_id, who=RENTER.address)
    order.hand_over(book, RESIGNED, who=provider)
    assert bond_of(order, provider) == (BOND, 0)
    assert network.escrow.deposit_of(order.order_id) == USD


@pytest.mark.parametrize("act", ["within the grace", "started again", "resumed as empty"])
def test_a_provider_that_the_pause_still_binds_pays_for_leaving(network: Network, act: str) -> None:
    order, book = emptied(network) if act == "resumed as empty" else running(network)
    provider = order.provider.address
    if act == "resumed as empty":
        network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    else:
        network.orders.pause(order.order_id, who=RENTER.address)
    wait(600 if act == "within the grace" else 601)
    network.orders.resume(order.order_id, who=RENTER.address)
    if act == "started again":
        order.confirm()
    order.hand_over(book, RESIGNED, who=provider)
    assert bond_of(order, provider) == (BOND - USD, 0)
    assert network.escrow.deposit_of(order.order_id) == 2 * USD


@pytest.mark.parametrize("deposit", [0, MINUTE - 1, MINUTE, USD])
def test_a_renters_pause_ends_whatever_the_deposit(network: Network, deposit: int) -> None:
    """Below a minute anyone closes; with more the provider goes. Either way its whole bond is free again."""
    order, book = running(network, deposit=USD)
    provider = order.provider.address
    wait(3600)
    network.orders.pause(order.order_id, who=RENTER.address)
    if deposit:
        network.escrow.top_up(order.order_id, deposit, who=RENTER.address)
    wait(601)
    if deposit < MINUTE:
        close(order, BY_EMPTY)
        assert network.escrow.owed(RENTER.address) == deposit
    else:
        with refused("NOT_EMPTY"):
            close(order, BY_EMPTY)
        order.hand_over(book, RESIGNED, who=provider)
        assert network.escrow.deposit_of(order.order_id) == deposit
    assert bond_of(order, provider) == (BOND, 0)
    assert paid_to(order, provider) == USD


def test_a_notice_given_in_a_pause_still_counts(network: Network) -> None:
    order, _ = emptied(network)
    provider = order.provider.address
    network.orders.give_notice(order.order_id, who=provider)
    wait(order.policy.reclaim_s)
    close(order, BY_RECLAIM, who=provider)
    assert bond_of(order, provider) == (BOND, 0)


def test_a_topped_up_lease_without_time_left_is_closed_by_anyone(network: Network) -> None:
    """It cannot be resumed and is not empty: its time ends it."""
    order, _ = running(network, deposit=USD, duration_s=3600)
    wait(3600)
    network.escrow.settle(order.order_id)
    network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    wait(601)
    with refused("DURATION_USED_UP"):
        network.orders.resume(order.order_id, who=STRANGER)
    with refused("NOT_EMPTY"):
        close(order, BY_EMPTY)
    close(order, BY_DURATION)
    assert network.escrow.owed(RENTER.address) == USD


@pytest.mark.parametrize("over_s", [-1, 0, 60])
def test_nobody_is_down_or_resigns_after_the_agreed_time(network: Network, over_s: int) -> None:
    """The provider stopped when the time was over and nobody has closed the lease: its bond is its own."""
    order, book = running(network, deposit=9 * USD, duration_s=3600)
    provider, since = order.provider.address, now() + 3600 + over_s
    wait(3600 + over_s + order.policy.down_s)
    votes = network.votes(Down(order.order_id, 1, provider, since))
    if over_s < 0:
        order.hand_over(book, DOWN, down_since=since, votes=votes)
        assert (order.lease["state"], order.lease["duration_left"]) == (VACANT, 1)
        return
    with refused("DURATION_USED_UP"):
        order.hand_over(book, DOWN, down_since=since, votes=votes)
    with refused("DURATION_USED_UP"):
        order.hand_over(book, RESIGNED, who=provider)
    close(order, BY_DURATION)
    assert bond_of(order, provider) == (BOND, 0)
    assert paid_to(order, provider) == USD


def test_a_pause_without_time_left_is_closed_not_left(network: Network) -> None:
    order, book = running(network, deposit=9 * USD, duration_s=3600)
    wait(3600)
    network.orders.pause(order.order_id, who=RENTER.address)
    wait(601)
    with refused("DURATION_USED_UP"):
        order.hand_over(book, RESIGNED, who=order.provider.address)
    close(order, BY_DURATION, who=order.provider.address)


def test_neither_side_alone_changes_the_agreed_time(network: Network) -> None:
    order, _ = running(network, deposit=9 * USD, duration_s=3600)
    moves, provider = network.moves, order.provider.address
    end = now() + 3600
    longer = (b"\3" * 32, USD, 7200, 1)
    moves.propose_update(order.order_id, *longer, who=RENTER.address)
    for caller in (RENTER.address, STRANGER):
        with refused("NOT_PROVIDER"):
            moves.accept_update(order.order_id, *longer, who=caller)
    with refused("NOT_RENTER"):
        moves.propose_update(order.order_id, b"\3" * 32, USD, 2**32 - 1, 2, who=provider)
    assert network.escrow.stream_of(order.order_id)[4] == end
    wait(100_000)
    close(order, BY_DURATION)
    assert paid_to(order, provider) == USD, "not a second beyond the agreed time"


def test_an_update_of_an_earlier_term_lengthens_nothing(network: Network) -> None:
    """The renter agreed with the provider that left, not with the stand-in."""
    order, book = running(network, deposit=9 * USD)
    moves, longer = network.moves, (b"\3" * 32, 3 * USD, 2**32 - 1, 1)
    moves.propose_update(order.order_id, *longer, who=RENTER.address)
    order.hand_over(book, RESIGNED, who=order.provider.address)
    order.take_over(book, 1)
    order.confirm()
    with refused("NOT_PROPOSED"):
        moves.accept_update(order.order_id, *longer, who=order.provider.address)
    assert order.lease["rate"] == 2 * USD


def test_an_update_does_not_wipe_out_an_hour_that_was_earned(network: Network) -> None:
    order, _ = running(network, deposit=9 * USD)
    provider = order.provider.address
    wait(3600)
    cheaper = (b"\3" * 32, 1, 60, 1)
    network.moves.propose_update(order.order_id, *cheaper, who=RENTER.address)
    network.moves.accept_update(order.order_id, *cheaper, who=provider)
    assert paid_to(order, provider) == USD
    assert order.lease["locked"] == USD


def test_nobody_is_bound_by_an_auction_without_a_deposit(network: Network) -> None:
    """A lease that used up its deposit is opened again: its winner would have to start, unpaid, for the grace."""
    order, book = running(network, deposit=USD)
    needed = order.policy.max_price_uusd // 6
    network.orders.give_notice(order.order_id, who=order.provider.address)
    wait(3599)
    order.hand_over(book, RESIGNED, who=order.provider.address)
    wait(order.policy.standin_s + 1)
    network.orders.expire_attempt(order.order_id)
    assert order.lease["state"] == UNPLACED
    left = network.escrow.deposit_of(order.order_id)
    network.escrow.top_up(order.order_id, needed - left - 1, who=RENTER.address)
    for caller in (STRANGER, RENTER.address):
        with refused("DEPOSIT_TOO_SMALL"):
            network.orders.reopen(order.order_id, order.policy.values(), who=caller)
    network.escrow.top_up(order.order_id, 1, who=RENTER.address)
    network.orders.reopen(order.order_id, order.policy.values(), who=STRANGER)
