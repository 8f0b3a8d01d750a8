"""Malicious tokens and receivers (re-entrancy, fees, reverts): they harm only themselves, never the books."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparewatt.protocol.contracts.payouts import PayoutEntry, settlement_tree
from tests.evm.auction import RENTER, Order, place_order
from tests.evm.machine import Contract, Reverted, refused, rolled_back, wait
from tests.evm.network import EXIT_S, MAX, MIN_STAKE, OPERATOR, TREASURY, UNBOND_S, USD, Network, full_network, key
from tests.evm.test_hand_over import NO_START

PRICES = {0: 2 * USD, 1: USD}
ALICE = key(91).address


@pytest.fixture(scope="module")
def deployed() -> Iterator[Network]:
    with rolled_back():
        yield full_network(token="wicked_token")


def require_solvent(network: Network) -> None:
    assert [vault.name for vault in network.vaults if not vault.solvent()] == []


def armed(network: Network, contract: Contract, function: str, *arguments: Any) -> None:
    """Make the token call this during its next transfer (re-entrancy)."""
    network.token.faucet(network.token.address, 10**9)
    for vault in network.vaults:
        network.token.approve_as_token(vault.address, MAX)
    network.token.arm(contract.address, contract.functions[function].data(arguments))


def require_one_failed_try(network: Network) -> None:
    assert (network.token.tries(), network.token.successes()) == (1, 0)
    require_solvent(network)


@pytest.mark.parametrize("inner", ["deposit", "fund", "exit", "claim"])
@pytest.mark.parametrize("outer", ["deposit", "exit", "claim", "fund"])
def test_the_settlement_is_not_re_entered(network: Network, outer: str, inner: str) -> None:
    network.fund(ALICE)
    contract = network.settlement
    contract.deposit(ALICE, 100, who=ALICE)
    token = network.token.address
    network.token.faucet(token, 10**6)
    tree = settlement_tree(
        sorted([PayoutEntry(ALICE, 10, 0), PayoutEntry(token, 10, 0)], key=lambda e: int(e.account, 16))
    )
    entries = sorted([(ALICE, 10, 0), (token, 10, 0)], key=lambda e: int(e[0], 16))
    contract.post_root(0, 1, tree.root, 2, 20, who=OPERATOR)
    contract.request_exit(5, who=ALICE)
    wait(EXIT_S)
    calls = {"deposit": (token, 7), "fund": (0, 7), "exit": (ALICE,), "claim": (0, 1, entries[0], 0, tree.path(0))}
    armed(network, contract, inner, *calls[inner])
    contract.send(outer, {**calls, "deposit": (ALICE, 7)}[outer], who=ALICE)
    require_one_failed_try(network)


@pytest.mark.parametrize("inner", ["withdraw", "top_up", "settle"])
@pytest.mark.parametrize("outer", ["withdraw", "top_up", "create_order"])
def test_the_escrow_is_not_re_entered(network: Network, outer: str, inner: str) -> None:
    order = place_order(network)
    order.started(PRICES)
    wait(100)
    network.escrow.settle(order.order_id)
    provider = order.provider.address
    wait(100)
    inner_calls = {"withdraw": (ALICE,), "top_up": (order.order_id, 5), "settle": (order.order_id,)}
    network.escrow.nonces(ALICE)
    armed(network, network.escrow, inner, *inner_calls[inner])
    if outer == "withdraw":
        network.escrow.withdraw(provider, who=provider)
    elif outer == "top_up":
        network.escrow.top_up(order.order_id, 5, who=RENTER.address)
    else:
        place_order(network)
    require_one_failed_try(network)


@pytest.mark.parametrize("inner", ["deposit_bond", "withdraw"])
@pytest.mark.parametrize("outer", ["deposit", "deposit_bond", "withdraw"])
def test_the_stake_registry_is_not_re_entered(network: Network, outer: str, inner: str) -> None:
    operator = network.validators[0].operator.address
    network.stakes.request_unbond(MIN_STAKE, who=operator)
    wait(UNBOND_S)
    network.stakes.finish_unbond(who=operator)
    armed(network, network.stakes, inner, *{"deposit_bond": (ALICE, 5), "withdraw": (ALICE,)}[inner])
    outer_calls = {"deposit": (MIN_STAKE,), "deposit_bond": (ALICE, 5), "withdraw": (operator,)}
    network.stakes.send(outer, outer_calls[outer], who=operator)
    require_one_failed_try(network)


@pytest.mark.parametrize("inner", ["cancel", "top_up"])
def test_a_hand_over_is_not_re_entered(order: Order, inner: str) -> None:
    """The bond's transfer calls the order or the escrow: the compensation is counted once, or nothing happens."""
    network = order.network
    book = order.match(PRICES)
    wait(order.policy.start_s + 1)
    if inner == "cancel":
        armed(network, network.orders, "cancel_order", order.order_id)
        order.hand_over(book, NO_START)
        require_one_failed_try(network)
    else:
        armed(network, network.escrow, "top_up", order.order_id, 7)
        with refused("NOT_RECEIVED"):
            order.hand_over(book, NO_START)
    require_solvent(network)


@pytest.mark.parametrize("fee_bps", [1, 100, 5000, 9999])
def test_a_token_that_takes_fees_is_counted_by_what_arrives(network: Network, fee_bps: int) -> None:
    network.token.set_fee(fee_bps)
    network.fund(ALICE)
    network.settlement.deposit(ALICE, 10_000, who=ALICE)
    assert network.settlement.deposited(ALICE) == 10_000 - fee_bps
    network.stakes.deposit_bond(ALICE, 10_000, who=ALICE)
    assert network.stakes.free_bond(ALICE) == 10_000 - fee_bps
    require_solvent(network)


def test_a_lease_in_a_token_that_takes_fees_stays_solvent_to_the_end(network: Network) -> None:
    network.token.set_fee(100)
    order = place_order(network)
    book = order.match(PRICES)
    wait(order.policy.start_s + 1)
    order.hand_over(book, NO_START)
    assert network.escrow.deposit_of(order.order_id) == 10 * USD - USD // 10 + USD - USD // 100
    order.take_over(book, 1)
    order.confirm()
    wait(3600)
    provider = order.provider.address
    network.orders.close(order.order_id, 1, who=RENTER.address)
    for account in (provider, RENTER.address, TREASURY):
        network.escrow.withdraw(account, who=account)
    assert network.escrow.held() == 0
    require_solvent(network)


def test_a_deposit_of_which_nothing_arrives_is_refused(network: Network) -> None:
    network.fund(ALICE)
    network.token.set_fee(10_000)
    with refused("NOTHING_RECEIVED"):
        network.settlement.deposit(ALICE, 5, who=ALICE)


def test_a_receiver_that_is_refused_blocks_no_other_payout(order: Order) -> None:
    network = order.network
    order.started(PRICES)
    provider = order.provider.address
    for account in (provider, TREASURY):
        network.token.set_blocked(account, True)
    wait(3600)
    network.escrow.settle(order.order_id)
    network.orders.close(order.order_id, 1, who=RENTER.address)
    network.escrow.withdraw(RENTER.address, who=RENTER.address)
    with refused("BLOCKED"):
        network.escrow.withdraw(provider, who=provider)
    network.escrow.withdraw(ALICE, who=provider)
    require_solvent(network)


@pytest.mark.parametrize("gas", [30_000, 60_000, 90_000, 120_000, 150_000, 180_000, 210_000, 240_000, 300_000])
def test_too_little_gas_changes_nothing(network: Network, gas: int) -> None:
    order = place_order(network, deposit=USD)
    order.started(PRICES)
    wait(3600)
    try:
        network.escrow.send("settle", (order.order_id,), who=ALICE, gas=gas)
        assert order.lease["state"] == 3
    except Reverted:
        assert order.lease["state"] == 2
        assert network.escrow.stream_of(order.order_id)[2] == USD
    require_solvent(network)


def test_a_token_that_burns_gas_costs_only_who_moves_it(order: Order) -> None:
    network = order.network
    order.started(PRICES)
    network.token.set_waste(10_000)
    wait(3600)
    network.escrow.settle(order.order_id)
    network.orders.close(order.order_id, 1, who=RENTER.address)
    with pytest.raises(Reverted):
        network.escrow.withdraw(RENTER.address, who=RENTER.address, gas=200_000)
    network.token.set_waste(0)
    network.escrow.withdraw(RENTER.address, who=RENTER.address)


def test_a_stake_has_an_upper_bound(network: Network) -> None:
    operator = network.validators[0].operator.address
    network.token.faucet(operator, 2**64)
    with refused("STAKE_TOO_LARGE"):
        network.stakes.deposit(2**64 - MIN_STAKE, who=operator)
    network.stakes.deposit(2**64 - MIN_STAKE - 1, who=operator)


def test_a_transfer_that_returns_false_is_a_failure(network: Network) -> None:
    network.fund(ALICE)
    network.settlement.deposit(ALICE, 5, who=ALICE)
    network.settlement.request_exit(5, who=ALICE)
    wait(EXIT_S)
    network.token.set_denying(True)
    with refused("TRANSFER_FAILED"):
        network.settlement.deposit(ALICE, 5, who=ALICE)
    with refused("TRANSFER_FAILED"):
        network.settlement.exit(ALICE)
    assert network.settlement.held() == 5
