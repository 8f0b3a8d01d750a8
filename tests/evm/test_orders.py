"""The states of an order, from its creation to a lease or to its end without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparewatt.protocol.contracts.match import order_id_of
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import RENTER, Order, place_order, policy_of
from tests.evm.machine import now, refused, wait
from tests.evm.network import ATTEMPT_S, CHAIN_ID, GUARDIAN, USD, Network, bare_network, key

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


def test_an_order_needs_a_deposit_a_sane_expiry_and_few_attempts(network: Network) -> None:
    network.fund(RENTER.address)

    def create(*, deposit: int = USD, expires_in: int = 100, attempts: int = 1) -> None:
        arguments = (policy_of().values(), b"\3" * 32, deposit, now() + expires_in, attempts)
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
    task = order.task(order.book({}))
    network.tasks.accept_no_match(task.values(), 0, order.votes(task))
    network.orders.reopen(order.order_id, order.policy.values())
    order.attempt = 1
    task = order.task(order.book({}))
    network.tasks.accept_no_match(task.values(), 0, order.votes(task))
    with refused("NO_ATTEMPT_LEFT"):
        network.orders.reopen(order.order_id, order.policy.values())
    wait(86_401)
    network.orders.expire_attempt(order.order_id)
    assert order.state == EXPIRED


def test_an_expired_order_is_not_reopened(order: Order) -> None:
    wait(ATTEMPT_S + 1)
    order.network.orders.expire_attempt(order.order_id)
    wait(86_400)
    with refused("ORDER_EXPIRED"):
        order.network.orders.reopen(order.order_id, order.policy.values())


@pytest.mark.parametrize("why", ["suspended", "unbonded"])
def test_a_candidate_that_cannot_serve_is_passed_over(order: Order, why: str) -> None:
    """It cannot void the certificate by spending its bond or leaving."""
    network = order.network
    winner = network.providers[1]
    if why == "suspended":
        network.registry.suspend(winner.address, bytes(32), who=GUARDIAN)
    else:
        network.stakes.unbond_bond(network.stakes.free_bond(winner.address), who=winner.address)
    order.match({0: 2 * USD, 1: USD})
    assert order.lease["provider"] == network.providers[0].address
    assert order.lease["position"] == 1
    assert order.lease["confirm_by"] == now() + order.policy.standin_s


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
        ("change_rate", (lease, 1)),
        ("credit", (lease, 1)),
        ("refund", (lease,)),
    ):
        with refused("NOT_ORDERS"):
            network.escrow.send(name, arguments, who=me)
    with refused("NOT_ESCROW"):
        network.orders.on_empty(lease, who=me)
