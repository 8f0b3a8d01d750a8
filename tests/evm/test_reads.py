"""Kept answers of views are dropped when what they read changes, by whatever means."""

from __future__ import annotations

import pytest

from tests.evm.auction import RENTER, STRANGER, place_order
from tests.evm.machine import READS, Reverted, rolled_back, set_time, wait
from tests.evm.network import USD, Network

ME = RENTER.address


def test_an_answer_is_kept_until_its_slot_is_written(network: Network) -> None:
    token = network.token
    before = token.balanceOf(ME)
    data = token.calldata
    call = (token.address, "0x" + "99" * 20, data)
    assert READS.answers[call] == before
    network.fund(STRANGER, 7)
    assert call in READS.answers, "another account's balance changed"
    network.fund(ME, 7)
    assert call not in READS.answers
    assert token.balanceOf(ME) == before + 7


def test_an_answer_about_a_sister_contract_follows_it(network: Network) -> None:
    """`solvent` of the escrow reads the token."""
    assert network.escrow.solvent()
    place_order(network, deposit=USD)
    assert network.escrow.solvent()
    network.token.transfer(ME, USD, who=network.escrow.address)
    assert not network.escrow.solvent()


def test_an_answer_that_asks_for_the_time_follows_it(network: Network) -> None:
    order = place_order(network)
    order.started({0: USD})
    assert network.escrow.accrued(order.order_id) == 0
    wait(3600)
    assert network.escrow.accrued(order.order_id) == USD
    set_time(network.orders.lease_of(order.order_id)[7])
    assert network.escrow.accrued(order.order_id) == 0


def gone(network: Network) -> None:
    """Changes a balance, then fails."""
    network.fund(ME, 7)
    network.orders.open_order(b"\1" * 32)


def test_a_chain_that_is_rolled_back_answers_as_before(network: Network) -> None:
    before = network.token.balanceOf(ME)
    with rolled_back():
        network.fund(ME, 7)
        assert network.token.balanceOf(ME) == before + 7
    assert network.token.balanceOf(ME) == before
    with pytest.raises(Reverted), rolled_back():
        gone(network)
    assert network.token.balanceOf(ME) == before


def test_a_view_that_reverts_is_not_kept(network: Network) -> None:
    for _ in range(2):
        with pytest.raises(Reverted):
            network.orders.open_order(b"\1" * 32)
