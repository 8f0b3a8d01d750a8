"""Actions of renter and provider on a lease, and its pay."""

from __future__ import annotations

import pytest

from tests.evm.auction import RENTER, STRANGER, Order, place_order
from tests.evm.machine import now, refused, wait
from tests.evm.network import FEE_BPS, TREASURY, USD, Network

PENDING, ACTIVE, PAUSED, UNPLACED, CLOSED, VACANT = range(1, 7)
BY_RENTER, BY_DURATION, BY_RECLAIM, BY_EMPTY = range(1, 5)
PRICES = {0: 2 * USD, 1: USD}
DETAILS = b"\5" * 32


@pytest.fixture
def lease(order: Order) -> Order:
    order.started(PRICES)
    return order


def owed(order: Order, account: str) -> int:
    amount: int = order.network.escrow.owed(account)
    return amount


def close(order: Order, reason: int, *, who: str = RENTER.address) -> None:
    order.network.orders.close(order.order_id, reason, who=who)


def test_only_its_provider_starts_a_lease_and_only_in_time(order: Order) -> None:
    order.match(PRICES)
    orders = order.network.orders
    with refused("NOT_PROVIDER"):
        orders.confirm_start(order.order_id, DETAILS, who=order.network.providers[0].address)
    wait(order.policy.start_s + 1)
    with refused("TOO_LATE"):
        orders.confirm_start(order.order_id, DETAILS, who=order.provider.address)


def test_owner_and_node_key_both_act_for_a_provider(order: Order) -> None:
    order.match(PRICES)
    order.network.orders.confirm_start(order.order_id, DETAILS, who=order.provider.address)
    assert order.lease["state"] == ACTIVE
    with refused("NOT_PENDING"):
        order.network.orders.confirm_start(order.order_id, DETAILS, who=order.provider.node_key.address)


@pytest.mark.parametrize("seconds", [0, 1, 59, 3600, 86_400])
def test_a_lease_pays_by_the_second_and_refunds_the_rest(lease: Order, seconds: int) -> None:
    wait(seconds)
    provider = lease.provider.address
    close(lease, BY_RENTER)
    pay = min(USD * seconds // 3600, 10 * USD)
    fee = pay * FEE_BPS // 10_000
    assert [owed(lease, a) for a in (provider, TREASURY, RENTER.address)] == [pay - fee, fee, 10 * USD - pay]
    assert lease.lease["state"] == CLOSED
    assert lease.network.stakes.bond_of(provider)[1] == 0


def test_settling_often_pays_the_same_to_the_last_unit(lease: Order) -> None:
    provider = lease.provider.address
    for _ in range(50):
        wait(7)
        lease.network.escrow.settle(lease.order_id)
    assert lease.network.escrow.accrued(lease.order_id) == 0
    pay = USD * 350 // 3600
    assert owed(lease, provider) + owed(lease, TREASURY) == pay
    assert owed(lease, TREASURY) == pay * FEE_BPS // 10_000


def test_a_lease_that_does_not_run_cannot_be_settled(order: Order) -> None:
    with refused("NOT_RUNNING"):
        order.network.escrow.settle(order.order_id)


def test_an_empty_deposit_pauses_and_only_after_the_grace_closes(network: Network) -> None:
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    with refused("NOT_PAUSED"):
        close(order, BY_EMPTY, who=STRANGER)
    wait(3600)
    network.escrow.settle(order.order_id)
    assert (order.lease["state"], order.lease["pause_reason"]) == (PAUSED, BY_EMPTY)
    with refused("GRACE_NOT_OVER"):
        close(order, BY_EMPTY, who=STRANGER)
    wait(order.policy.empty_grace_s + 1)
    close(order, BY_EMPTY, who=STRANGER)
    assert order.lease["state"] == CLOSED


def test_a_topped_up_lease_resumes_and_its_provider_confirms_again(network: Network) -> None:
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    wait(4000)
    network.escrow.settle(order.order_id)
    with refused("DEPOSIT_TOO_SMALL"):
        network.orders.resume(order.order_id, who=RENTER.address)
    network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    network.orders.resume(order.order_id, who=STRANGER)
    assert order.lease["state"] == PENDING
    network.orders.confirm_start(order.order_id, DETAILS, who=order.provider.address)
    wait(36)
    assert network.escrow.accrued(order.order_id) == USD // 100


def test_a_pause_stops_pay_and_keeps_the_time_that_is_left(lease: Order) -> None:
    orders = lease.network.orders
    with refused("NOT_PAUSED"):
        orders.resume(lease.order_id, who=RENTER.address)
    with refused("NOT_RENTER"):
        orders.pause(lease.order_id, who=STRANGER)
    wait(100)
    orders.pause(lease.order_id, who=RENTER.address)
    with refused("NOT_ACTIVE"):
        orders.pause(lease.order_id, who=RENTER.address)
    wait(1000)
    assert lease.network.escrow.accrued(lease.order_id) == 0
    with refused("NOT_RENTER"):
        orders.resume(lease.order_id, who=STRANGER)
    assert lease.lease["duration_left"] == lease.policy.duration_s - 100


def test_a_lease_ends_when_its_time_is_used_up_and_pays_no_second_more(network: Network) -> None:
    order = place_order(network, duration_s=60)
    order.started(PRICES)
    wait(59)
    with refused("DURATION_NOT_OVER"):
        close(order, BY_DURATION, who=STRANGER)
    wait(1000)
    provider = order.provider.address
    close(order, BY_DURATION, who=STRANGER)
    assert owed(order, provider) + owed(order, TREASURY) == USD * 60 // 3600


def test_a_used_up_lease_does_not_resume(network: Network) -> None:
    order = place_order(network, duration_s=60)
    order.started(PRICES)
    wait(60)
    network.orders.pause(order.order_id, who=RENTER.address)
    with refused("DURATION_USED_UP"):
        network.orders.resume(order.order_id, who=RENTER.address)
    close(order, BY_DURATION, who=STRANGER)


@pytest.mark.parametrize("paused", [False, True])
def test_a_provider_leaves_after_its_notice(lease: Order, paused: bool) -> None:  # noqa: FBT001
    orders, provider = lease.network.orders, lease.provider.address
    if paused:
        orders.pause(lease.order_id, who=RENTER.address)
    with refused("NOTICE_NOT_OVER"):
        close(lease, BY_RECLAIM, who=provider)
    with refused("NOT_PROVIDER"):
        orders.give_notice(lease.order_id, who=STRANGER)
    orders.give_notice(lease.order_id, who=provider)
    with refused("ALREADY_NOTICED"):
        orders.give_notice(lease.order_id, who=provider)
    wait(lease.policy.reclaim_s - 1)
    with refused("NOTICE_NOT_OVER"):
        close(lease, BY_RECLAIM, who=provider)
    wait(1)
    with refused("NOT_PROVIDER"):
        close(lease, BY_RECLAIM, who=STRANGER)
    close(lease, BY_RECLAIM, who=provider)
    assert lease.network.stakes.bond_of(provider)[1] == 0


UPDATE = (b"\6" * 32, 3 * USD, 7200, 1)


def test_an_update_takes_both_sides(lease: Order) -> None:
    orders, moves, provider = lease.network.orders, lease.network.moves, lease.provider.address
    with refused("NOT_RENTER"):
        moves.propose_update(lease.order_id, *UPDATE, who=provider)
    with refused("NOT_PROPOSED"):
        moves.accept_update(lease.order_id, *UPDATE, who=provider)
    moves.propose_update(lease.order_id, *UPDATE, who=RENTER.address)
    with refused("STALE_SEQ"):
        moves.propose_update(lease.order_id, *UPDATE, who=RENTER.address)
    with refused("NOT_PROVIDER"):
        moves.accept_update(lease.order_id, *UPDATE, who=RENTER.address)
    for other in ((b"\6" * 32, 2 * USD, 7200, 1), (b"\6" * 32, 3 * USD, 7201, 1), (b"\7" * 32, 3 * USD, 7200, 1)):
        with refused("NOT_PROPOSED"):
            moves.accept_update(lease.order_id, *other, who=provider)
    wait(3600)
    moves.accept_update(lease.order_id, *UPDATE, who=provider)
    assert owed(lease, provider) + owed(lease, TREASURY) == USD
    wait(3600)
    assert lease.network.escrow.accrued(lease.order_id) == 3 * USD
    assert orders.order_of(lease.order_id)[8] == b"\6" * 32
    assert lease.lease["locked"] == USD
    with refused("NOT_PROPOSED"):
        moves.accept_update(lease.order_id, *UPDATE, who=provider)


@pytest.mark.parametrize(
    ("rate", "duration_s", "reason"),
    [
        (0, 60, "BAD_RATE"),
        (3 * USD + 1, 60, "BAD_RATE"),
        (USD, 0, "BAD_DURATION"),
        (USD, 59, "BAD_DURATION"),
        (USD, 2**32, "BAD_DURATION"),
    ],
)
def test_an_update_has_bounds(lease: Order, rate: int, duration_s: int, reason: str) -> None:
    with refused(reason):
        lease.network.moves.propose_update(lease.order_id, b"\6" * 32, rate, duration_s, 1, who=RENTER.address)


def updated(lease: Order, *, rate: int, duration_s: int) -> None:
    moves = lease.network.moves
    update = (b"\6" * 32, rate, duration_s, moves.update_seq(lease.order_id) + 1)
    moves.propose_update(lease.order_id, *update, who=RENTER.address)
    moves.accept_update(lease.order_id, *update, who=lease.provider.address)


def test_an_update_lengthens_a_lease_and_nothing_else_does(network: Network) -> None:
    order = place_order(network, duration_s=60)
    order.started(PRICES)
    wait(30)
    network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    updated(order, rate=USD, duration_s=3600)
    wait(3599)
    with refused("DURATION_NOT_OVER"):
        close(order, BY_DURATION, who=STRANGER)
    wait(1000)
    provider = order.provider.address
    close(order, BY_DURATION, who=STRANGER)
    assert owed(order, provider) + owed(order, TREASURY) == USD * 30 // 3600 + USD


def test_a_lease_whose_time_ran_out_can_still_be_lengthened(network: Network) -> None:
    order = place_order(network, duration_s=60)
    order.started(PRICES)
    wait(1000)
    updated(order, rate=USD, duration_s=2**32 - 1)
    with refused("DURATION_NOT_OVER"):
        close(order, BY_DURATION, who=STRANGER)
    assert order.lease["duration_left"] == 2**32 - 1
    assert owed(order, order.provider.address) + owed(order, TREASURY) == USD * 60 // 3600


def test_an_update_shortens_a_lease_too_and_a_pause_keeps_the_new_rest(lease: Order) -> None:
    wait(100)
    updated(lease, rate=USD, duration_s=120)
    wait(20)
    lease.network.orders.pause(lease.order_id, who=RENTER.address)
    assert lease.lease["duration_left"] == 100


def test_an_empty_lease_is_not_updated(network: Network) -> None:
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    network.moves.propose_update(order.order_id, *UPDATE, who=RENTER.address)
    wait(3600)
    with refused("DEPOSIT_EMPTY"):
        network.moves.accept_update(order.order_id, *UPDATE, who=order.provider.address)


def test_only_a_running_lease_is_updated(order: Order) -> None:
    order.match(PRICES)
    with refused("NOT_ACTIVE"):
        order.network.moves.propose_update(order.order_id, *UPDATE, who=RENTER.address)
    with refused("NOT_ACTIVE"):
        order.network.moves.accept_update(order.order_id, *UPDATE, who=order.provider.address)


# A pause ends


def emptied(network: Network) -> Order:
    """A lease that its empty deposit has paused."""
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    wait(3600)
    network.escrow.settle(order.order_id)
    assert (order.lease["state"], order.lease["pause_reason"]) == (PAUSED, BY_EMPTY)
    return order


def test_a_lease_topped_up_within_the_grace_is_not_closed_as_empty(network: Network) -> None:
    order = emptied(network)
    wait(order.policy.empty_grace_s)
    network.fund(STRANGER)
    network.escrow.top_up(order.order_id, USD // 60, who=STRANGER)
    wait(100_000)
    with refused("NOT_EMPTY"):
        close(order, BY_EMPTY, who=STRANGER)
    network.orders.resume(order.order_id, who=STRANGER)
    order.confirm()
    assert order.lease["state"] == ACTIVE


def test_a_top_up_below_a_minute_does_not_keep_a_lease(network: Network) -> None:
    order = emptied(network)
    network.escrow.top_up(order.order_id, USD // 60 - 1, who=RENTER.address)
    wait(order.policy.empty_grace_s + 1)
    close(order, BY_EMPTY, who=STRANGER)
    assert owed(order, RENTER.address) == USD // 60 - 1


def test_an_empty_pause_is_no_free_way_out(network: Network) -> None:
    """The provider resumes it, or anyone closes it."""
    order = emptied(network)
    book = order.book(PRICES)
    network.escrow.top_up(order.order_id, USD, who=RENTER.address)
    wait(order.policy.empty_grace_s + 1)
    with refused("PAUSED_AS_EMPTY"):
        order.hand_over(book, 18, who=order.provider.address)
    network.orders.resume(order.order_id, who=order.provider.address)
    order.confirm()


def test_a_renters_pause_with_money_is_not_closed_as_empty(lease: Order) -> None:
    lease.network.orders.pause(lease.order_id, who=RENTER.address)
    wait(lease.policy.empty_grace_s + 1)
    with refused("NOT_EMPTY"):
        close(lease, BY_EMPTY, who=STRANGER)


def test_a_renters_pause_at_an_empty_deposit_is_closed_by_anyone(network: Network) -> None:
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    wait(3600)
    network.orders.pause(order.order_id, who=RENTER.address)
    provider = order.provider.address
    assert order.lease["pause_reason"] == BY_RENTER
    wait(order.policy.empty_grace_s)
    with refused("GRACE_NOT_OVER"):
        close(order, BY_EMPTY, who=STRANGER)
    wait(1)
    close(order, BY_EMPTY, who=STRANGER)
    assert network.stakes.bond_of(provider)[1] == 0


def test_a_renters_pause_binds_its_provider_for_the_grace_only(lease: Order) -> None:
    book, provider = lease.book(PRICES), lease.provider.address
    lease.network.orders.pause(lease.order_id, who=RENTER.address)
    wait(lease.policy.empty_grace_s)
    with refused("GRACE_NOT_OVER"):
        lease.hand_over(book, 18, who=provider)
    wait(1)
    bond = sum(lease.network.stakes.bond_of(provider)[:3])
    lease.hand_over(book, 18, who=provider)
    assert lease.lease["state"] == VACANT
    assert lease.network.stakes.bond_of(provider)[:2] == (bond, 0)
    assert lease.network.escrow.deposit_of(lease.order_id) == 10 * USD


# A start that the renter calls off


@pytest.mark.parametrize("waited", [0, 30])
def test_closing_before_the_start_pays_for_the_time_set_for_it(order: Order, waited: int) -> None:
    order.match(PRICES)
    provider = order.provider.address
    wait(waited)
    close(order, BY_RENTER)
    charge = USD * order.policy.start_s // 3600
    fee = charge * FEE_BPS // 10_000
    assert [owed(order, a) for a in (provider, TREASURY, RENTER.address)] == [charge - fee, fee, 10 * USD - charge]
    assert order.network.stakes.bond_of(provider)[1] == 0


def test_a_provider_that_missed_its_start_is_paid_nothing(order: Order) -> None:
    order.match(PRICES)
    wait(order.policy.start_s + 1)
    provider = order.provider.address
    close(order, BY_RENTER)
    assert (owed(order, provider), owed(order, RENTER.address)) == (0, 10 * USD)


def test_a_start_after_a_resume_is_called_off_for_nothing(lease: Order) -> None:
    orders, provider = lease.network.orders, lease.provider.address
    orders.pause(lease.order_id, who=RENTER.address)
    orders.resume(lease.order_id, who=RENTER.address)
    close(lease, BY_RENTER)
    assert owed(lease, provider) == 0


def test_the_charge_is_at_most_the_deposit(network: Network) -> None:
    order = place_order(network, deposit=USD // 2, start_s=3600)
    order.match({0: 3 * USD})
    provider = order.provider.address
    close(order, BY_RENTER)
    assert owed(order, provider) + owed(order, TREASURY) == USD // 2
    assert owed(order, RENTER.address) == 0


def test_a_lease_that_waits_for_its_start_does_not_end_by_its_time(order: Order) -> None:
    order.match(PRICES)
    with refused("NOT_RUNNING"):
        close(order, BY_DURATION, who=STRANGER)


def test_a_lease_closes_once_for_a_known_reason_by_the_right_one(lease: Order) -> None:
    with refused("NOT_RENTER"):
        close(lease, BY_RENTER, who=STRANGER)
    for reason in (0, 5, 16, 2**256 - 1):
        with refused("UNKNOWN_REASON"):
            close(lease, reason)
    close(lease, BY_RENTER)
    with refused("NO_SUCH_LEASE"):
        close(lease, BY_RENTER)
    with refused("NOT_RUNNING"):
        lease.network.orders.give_notice(lease.order_id, who=lease.lease["provider"])


def test_money_goes_only_to_leases_that_are_open(lease: Order) -> None:
    close(lease, BY_RENTER)
    with refused("NO_SUCH_LEASE"):
        lease.network.escrow.top_up(lease.order_id, 1, who=RENTER.address)


def test_the_escrow_keeps_its_own_order(lease: Order) -> None:
    """Even if the order contract erred."""
    escrow, orders = lease.network.escrow, lease.network.orders.address
    with refused("ALREADY_OPEN"):
        escrow.open(lease.order_id, RENTER.address, 1, who=orders)
    with refused("ALREADY_RUNNING"):
        escrow.start(lease.order_id, STRANGER, 1, now(), who=orders)
    with refused("STILL_RUNNING"):
        escrow.refund(lease.order_id, who=orders)
    with refused("ZERO_RATE"):
        escrow.change_rate(lease.order_id, 0, now(), who=orders)
    with refused("NOT_RECEIVED"):
        escrow.credit(lease.order_id, 1, who=orders)
    escrow.stop(lease.order_id, now(), who=orders)
    with refused("NOT_RUNNING"):
        escrow.change_rate(lease.order_id, 1, now(), who=orders)
    with refused("ZERO_RATE"):
        escrow.start(lease.order_id, STRANGER, 0, now(), who=orders)
