"""The states of an order, from its creation to a lease or to its end without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.protocol.contracts.match import order_id_of
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import RENTER, Order, place_order
from tests.evm.machine import CHAIN_ID, deploy, now, refused, wait
from tests.evm.network import ATTEMPT_S, DEPLOYER, GUARDIAN, TREASURY, USD, Network, bare_network, key
from tests.order_terms import order_terms

OPEN, MATCHED, UNMATCHED, CLOSED, EXPIRED = range(1, 6)
PENDING, UNPLACED = 1, 4


def test_an_order_opens_its_auction_and_holds_the_deposit(network: Network) -> None:
    order = place_order(network, deposit=10 * USD)
    assert order.state == OPEN
    assert network.orders.events == ["PROVIDER_LOOKUP"]
    assert network.escrow.deposit_of(order.order_id) == 10 * USD


def test_an_orders_id_covers_what_is_ordered(network: Network) -> None:
    for nonce in range(2):
        order = place_order(network)
        assert order.order_id == order_id_of(
            chain_id=CHAIN_ID,
            orders=network.orders.address,
            renter=RENTER.address,
            renter_nonce=nonce,
            policy_hash=struct_hash(order.policy),
            spec_hash=b"\3" * 32,
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_price_uusd": 0}, "BAD_MAX_PRICE"),
        ({"max_price_uusd": 2**40}, "BAD_MAX_PRICE"),
        ({"latency_value": 2**20}, "BAD_LATENCY_VALUE"),
        ({"payment_rule": 2}, "BAD_PAYMENT_RULE"),
        ({"min_uptime_ppm": 10**6 + 1}, "BAD_PPM"),
        ({"min_reputation_ppm": 10**6 + 1}, "BAD_PPM"),
        ({"commit_ms": 99}, "BAD_WINDOW"),
        ({"commit_ms": 60_001}, "BAD_WINDOW"),
        ({"reveal_ms": 99}, "BAD_WINDOW"),
        ({"reveal_ms": 60_001}, "BAD_WINDOW"),
        ({"start_s": 9}, "BAD_START_TIME"),
        ({"start_s": 3601}, "BAD_START_TIME"),
        ({"standin_s": 9}, "BAD_START_TIME"),
        ({"standin_s": 3601}, "BAD_START_TIME"),
        ({"down_s": 4}, "BAD_DOWN_TIME"),
        ({"down_s": 3601}, "BAD_DOWN_TIME"),
        ({"reclaim_s": 30 * 86_400 + 1}, "BAD_GRACE_TIME"),
        ({"empty_grace_s": 30 * 86_400 + 1}, "BAD_GRACE_TIME"),
        ({"duration_s": 59}, "BAD_DURATION"),
    ],
)
def test_a_policy_out_of_bounds_is_refused(network: Network, changes: dict[str, Any], reason: str) -> None:
    with refused(reason):
        place_order(network, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_price_uusd": 1, "latency_value": 2**20 - 1, "payment_rule": 1, "duration_s": 60},
        {"max_price_uusd": 2**40 - 1, "start_s": 10, "standin_s": 10, "down_s": 5},
        {"reclaim_s": 30 * 86_400, "empty_grace_s": 30 * 86_400, "start_s": 3600, "standin_s": 3600, "down_s": 3600},
        {"duration_s": 2**32 - 1, "reclaim_s": 0, "empty_grace_s": 0},
    ],
)
def test_a_policy_at_its_bounds_is_kept_to_the_last_bit(network: Network, changes: dict[str, Any]) -> None:
    order = place_order(network, deposit=2 * 10**11, **changes)
    lease, policy = order.lease, order.policy
    kept = [lease[n] for n in ("max_rate", "duration_left", "reclaim", "grace", "start", "standin", "down")]
    assert kept == [
        policy.max_price_uusd,
        policy.duration_s,
        policy.reclaim_s,
        policy.empty_grace_s,
        policy.start_s,
        policy.standin_s,
        policy.down_s,
    ]


def test_a_lease_with_all_fields_at_their_bounds_lives_and_ends_to_the_last_unit(network: Network) -> None:
    """A field that ran into its neighbour in a packed word would change it in one of these steps."""
    top, month, hour = 2**40 - 1, 30 * 86_400, 3_600
    bounds: dict[str, Any] = {
        "reclaim_s": month,
        "empty_grace_s": month,
        "start_s": hour,
        "standin_s": hour,
        "down_s": hour,
    }
    for provider in network.providers[:2]:
        for _ in range(2):
            network.fund(provider.address, 10**12)
        network.stakes.deposit_bond(provider.address, top, who=provider.address)
    network.fund(RENTER.address, 10**12)
    order = place_order(network, deposit=2**40, max_price_uusd=top, duration_s=2**32 - 1, max_attempts=16, **bounds)
    book = order.started({0: top, 1: top})
    first, started = order.provider, now()
    fixed = {"rate": top, "max_rate": top, "locked": top, "reclaim": month, "grace": month} | {
        "start": hour,
        "standin": hour,
        "down": hour,
    }

    def shown() -> dict[str, Any]:
        lease = order.lease
        assert {name: lease[name] for name in fixed} == fixed
        return lease

    assert shown()["duration_left"] == 2**32 - 1
    network.orders.give_notice(order.order_id, who=first.address)
    wait(hour)
    network.orders.pause(order.order_id, who=RENTER.address)
    assert (shown()["paused_at"], order.lease["notice_at"]) == (started + hour, started)
    assert order.lease["duration_left"] == 2**32 - 1 - hour
    assert network.escrow.deposit_of(order.order_id) == 2**40 - top == 1
    network.escrow.top_up(order.order_id, top // 60, who=RENTER.address)
    wait(month + 1)
    network.orders.resume(order.order_id, who=RENTER.address)
    assert shown()["confirm_by"] == now() + hour
    order.confirm()
    order.hand_over(book, 18, who=first.address)
    assert network.stakes.bond_of(first.address)[1] == 0
    order.take_over(book, 1)
    lease = shown()
    assert (lease["term"], lease["position"], lease["notice_at"], lease["resumed"]) == (2, 1, 0, False)
    assert (lease["confirm_by"], lease["vacated_at"]) == (now() + hour, now())
    network.orders.close(order.order_id, 1, who=RENTER.address)
    assert network.escrow.deposit_of(order.order_id) == 0
    assert sum(network.escrow.owed(a) for a in (RENTER.address, TREASURY, *(p.address for p in network.providers))) == (
        2**40 + top // 60
    )


def test_an_order_needs_a_deposit_a_sane_expiry_and_few_attempts(network: Network) -> None:
    network.fund(RENTER.address)

    def create(*, deposit: int = USD, expires_in: int = 100, attempts: int = 1) -> None:
        arguments = (order_terms().values(), b"\3" * 32, deposit, now() + expires_in, attempts)
        network.orders.create_order(*arguments, who=RENTER.address)

    with refused("DEPOSIT_TOO_SMALL"):
        create(deposit=3 * USD // 6 - 1)
    with refused("ZERO_AMOUNT"):
        create(deposit=0)
    for seconds in (0, 30 * 86_400 + 1):
        with refused("BAD_EXPIRY"):
            create(expires_in=seconds)
    with refused("TOO_MANY_ATTEMPTS"):
        create(attempts=17)
    create(deposit=3 * USD // 6, attempts=16)


def test_no_order_before_the_first_snapshot() -> None:
    from tests.evm.machine import rolled_back

    with rolled_back():
        network = bare_network()
        network.add_validator(0)
        with refused("NO_SNAPSHOT"):
            place_order(network)


def test_the_renter_cancels_and_is_owed_the_deposit(order: Order) -> None:
    network = order.network
    with refused("NOT_RENTER"):
        network.orders.cancel_order(order.order_id, who=GUARDIAN)
    network.orders.cancel_order(order.order_id, who=RENTER.address)
    assert order.state == CLOSED
    assert network.escrow.owed(RENTER.address) == 10 * USD
    with refused("NOT_OPEN"):
        network.orders.cancel_order(order.order_id, who=RENTER.address)


def test_an_attempt_without_a_certificate_expires_and_can_be_reopened(order: Order) -> None:
    network = order.network
    with refused("ATTEMPT_NOT_OVER"):
        network.orders.expire_attempt(order.order_id)
    with refused("NOT_UNMATCHED"):
        network.orders.reopen(order.order_id, order.policy.values())
    wait(ATTEMPT_S + 1)
    network.orders.expire_attempt(order.order_id)
    assert order.state == UNMATCHED
    with refused("ORDER_NOT_EXPIRED"):
        network.orders.expire_attempt(order.order_id)
    other = replace(order.policy, gpu_units=9)
    with refused("WRONG_POLICY"):
        network.orders.reopen(order.order_id, other.values())
    network.orders.reopen(order.order_id, order.policy.values())
    assert order.state == OPEN
    order.attempt = 1
    order.match({0: USD})
    assert order.state == MATCHED


def test_the_last_attempt_ends_the_order_with_a_refund(network: Network) -> None:
    order = place_order(network, max_attempts=0)
    wait(ATTEMPT_S + 1)
    network.orders.expire_attempt(order.order_id)
    assert order.state == EXPIRED
    assert network.escrow.owed(RENTER.address) == 10 * USD
    with refused("NOT_OPEN"):
        network.orders.expire_attempt(order.order_id)


def test_attempts_and_time_run_out(network: Network) -> None:
    order = place_order(network, max_attempts=1)
    no_match(order)
    with refused("ORDER_NOT_EXPIRED"):
        network.orders.expire_attempt(order.order_id)
    network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    no_match(order)
    with refused("NO_ATTEMPT_LEFT"):
        network.orders.reopen(order.order_id, order.policy.values())
    network.orders.expire_attempt(order.order_id)
    assert order.state == EXPIRED
    assert network.escrow.owed(RENTER.address) == 10 * USD


def no_match(order: Order) -> None:
    task = order.task(order.book({}))
    order.network.tasks.accept_no_match(task.values(), 0, order.votes(task))


def test_the_renter_reopens_beyond_the_automatic_attempts(network: Network) -> None:
    order = place_order(network, max_attempts=0)
    no_match(order)
    network.orders.reopen(order.order_id, order.policy.values(), who=RENTER.address)
    order.attempt = 1
    order.match({0: USD})
    assert order.state == MATCHED


def test_each_attempt_keeps_the_time_of_its_own_opening(order: Order) -> None:
    orders = order.network.orders
    first = now()
    no_match(order)
    wait(50)
    orders.reopen(order.order_id, order.policy.values())
    assert [orders.opened_at(order.order_id, attempt) for attempt in range(3)] == [first, first + 50, 0]
    order.attempt = 1
    wait(ATTEMPT_S)
    order.match({0: USD})
    assert order.state == MATCHED


def test_an_expired_order_is_not_reopened(order: Order) -> None:
    wait(ATTEMPT_S + 1)
    order.network.orders.expire_attempt(order.order_id)
    wait(86_400)
    with refused("ORDER_EXPIRED"):
        order.network.orders.reopen(order.order_id, order.policy.values())


@pytest.mark.parametrize("why", ["suspended", "bondless"])
def test_a_candidate_that_cannot_be_placed_is_passed_over(order: Order, why: str) -> None:
    network = order.network
    winner = network.providers[1]
    if why == "suspended":
        network.registry.suspend(winner.address, bytes(32), who=GUARDIAN)
    else:
        empty_bond(network, winner.address, leave=order.bid_bond - 1)
    order.match({0: 2 * USD, 1: USD})
    (skipped,) = network.orders.logged("CandidateSkipped")
    assert (skipped["provider"], skipped["suspended"]) == (winner.address, why == "suspended")
    assert order.lease["provider"] == network.providers[0].address
    assert order.lease["position"] == 1
    assert order.lease["confirm_by"] == now() + order.policy.start_s


def empty_bond(network: Network, provider: str, *, leave: int) -> None:
    """As a forfeited bid bond of another order does it."""
    excess = sum(network.stakes.bond_of(provider)[:3]) - leave
    network.stakes.forfeit_bond(provider, excess, GUARDIAN, GUARDIAN, who=network.book.address)


@pytest.mark.parametrize("how", ["maintenance", "left", "unbonding", "one unit more than the bid bond"])
def test_a_candidate_is_bound_by_its_bid(order: Order, how: str) -> None:
    """It cannot void the certificate by leaving after its bid."""
    network = order.network
    winner = network.providers[1].address
    if how == "maintenance":
        network.registry.set_status(3, who=winner)
    elif how == "left":
        network.registry.set_status(5, who=winner)
    elif how == "unbonding":
        network.stakes.unbond_bond(network.stakes.free_bond(winner), who=winner)
    else:
        empty_bond(network, winner, leave=order.bid_bond)
    order.match({0: 2 * USD, 1: USD})
    assert order.lease["provider"] == winner
    locked = order.bid_bond if how.startswith("one") else USD
    assert order.lease["locked"] == network.stakes.bond_of(winner)[1] == locked


@pytest.mark.parametrize(("price", "locked"), [(1, 3 * USD // 6), (USD // 2 + 1, USD // 2 + 1), (3 * USD, 3 * USD)])
def test_an_hour_of_pay_is_locked_and_at_least_the_bid_bond(order: Order, price: int, locked: int) -> None:
    order.match({0: price})
    assert order.lease["locked"] == order.network.stakes.bond_of(order.provider.address)[1] == locked


def test_the_smallest_order_still_locks_something(network: Network) -> None:
    order = place_order(network, max_price_uusd=1)
    order.match({0: 1})
    assert order.lease["locked"] == 1


def test_a_match_that_can_be_placed_nowhere_leaves_the_order_unmatched(order: Order) -> None:
    for provider in order.network.providers:
        order.network.registry.suspend(provider.address, bytes(32), who=GUARDIAN)
    order.match({0: 2 * USD, 1: USD})
    assert order.state == UNMATCHED
    assert order.lease["state"] == 0


@pytest.mark.parametrize(
    "call", [("on_match", (b"\1" * 32, [("0x" + "0" * 40, 0)] * 3)), ("on_no_match", (b"\1" * 32,))]
)
def test_only_the_task_manager_brings_a_match(network: Network, call: tuple[str, Any]) -> None:
    with refused("NOT_TASKS"):
        network.orders.send(*call, who=key(5).address)


def test_only_the_order_contract_moves_the_escrow(network: Network) -> None:
    lease = b"\1" * 32
    me = key(5).address
    for name, arguments in (
        ("open", (lease, me, 1)),
        ("start", (lease, me, 1, 1)),
        ("stop", (lease, 1)),
        ("change_rate", (lease, 1, 1)),
        ("pay", (lease, me, 1)),
        ("credit", (lease, 1)),
        ("refund", (lease,)),
    ):
        with refused("NOT_ORDERS"):
            network.escrow.send(name, arguments, who=me)
    with refused("NOT_ESCROW"):
        network.orders.on_empty(lease, who=me)


def test_only_the_contract_of_moves_moves_a_lease(network: Network) -> None:
    lease = b"\1" * 32
    me = key(5).address
    for name, arguments in (
        ("vacate", (lease, 16, 0, True, 2)),
        ("place", (lease, me, 1, 1)),
        ("apply_update", (lease, lease, 1, 60)),
    ):
        with refused("NOT_MOVES"):
            network.orders.send(name, arguments, who=me)


def test_the_contract_of_moves_is_named_once_by_the_deployer(network: Network) -> None:
    with refused("NOT_DEPLOYER"):
        network.orders.wire(network.moves.address)
    with refused("ALREADY_WIRED"):
        network.orders.wire(network.moves.address, who=DEPLOYER)
    sisters = [c.address for c in (network.registry, network.stakes, network.escrow, network.tasks, network.token)]
    with refused("ZERO_ADDRESS"):
        deploy("deployment_order", *sisters, who=DEPLOYER).wire("0x" + "0" * 40, who=DEPLOYER)


def test_a_refund_pays_for_the_next_order(network: Network) -> None:
    first = place_order(network, deposit=10 * USD)
    network.orders.cancel_order(first.order_id, who=RENTER.address)
    before = network.token.balanceOf(RENTER.address)
    network.token.approve(network.escrow.address, 0, who=RENTER.address)
    arguments = (order_terms().values(), b"\3" * 32, 7 * USD, now() + 100, 0)
    second = network.orders.create_order(*arguments, who=RENTER.address)
    assert network.escrow.deposit_of(second) == 7 * USD
    assert network.escrow.owed(RENTER.address) == 3 * USD
    assert network.token.balanceOf(RENTER.address) == before
    network.token.approve(network.escrow.address, 2 * USD, who=RENTER.address)
    network.escrow.top_up(second, 5 * USD, who=RENTER.address)
    assert network.escrow.deposit_of(second) == 12 * USD
    assert network.escrow.owed(RENTER.address) == 0
    assert network.token.balanceOf(RENTER.address) == before - 2 * USD
    assert network.escrow.held() == 12 * USD


def test_nobody_spends_what_another_is_owed(network: Network) -> None:
    first = place_order(network, deposit=10 * USD)
    network.orders.cancel_order(first.order_id, who=RENTER.address)
    stranger = key(5)
    other = place_order(network, deposit=USD, renter=stranger)
    network.escrow.top_up(other.order_id, USD, who=stranger.address)
    assert network.escrow.owed(RENTER.address) == 10 * USD
