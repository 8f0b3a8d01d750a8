"""The development token: an ERC-20 with permits and a faucet."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.meta_transactions import Permit
from sparewatt.protocol.signing import Domain
from sparewatt.protocol.typed_message import message_digest
from tests.evm.machine import CHAIN_ID, deploy, now, refused, set_chain_id, wait
from tests.evm.network import MAX, Network, key

ALICE, BOB = key(11), key(12)


def permit(network: Network, *, amount: int, deadline: int, nonce: int = 0) -> tuple[object, ...]:
    domain = Domain("Sparewatt test dollar", "1", chain_id=CHAIN_ID, verifying_contract=network.token.address)
    message = Permit(ALICE.address, BOB.address, amount, nonce, deadline)
    signature = ALICE.sign(message_digest(domain, message))
    return ALICE.address, BOB.address, amount, deadline, signature[64], signature[:32], signature[32:64]


def test_a_transfer_moves_what_it_says(network: Network) -> None:
    network.token.faucet(ALICE.address, 100)
    network.token.transfer(BOB.address, 40, who=ALICE.address)
    assert [network.token.balanceOf(k.address) for k in (ALICE, BOB)] == [60, 40]


def test_nobody_spends_more_than_is_there(network: Network) -> None:
    network.token.faucet(ALICE.address, 100)
    with refused("BALANCE_TOO_SMALL"):
        network.token.transfer(BOB.address, 101, who=ALICE.address)
    with refused("ZERO_ADDRESS"):
        network.token.transfer("0x" + "0" * 40, 1, who=ALICE.address)
    with refused("ALLOWANCE_TOO_SMALL"):
        network.token.transferFrom(ALICE.address, BOB.address, 1, who=BOB.address)


def test_an_allowance_is_used_up_unless_it_is_endless(network: Network) -> None:
    network.token.faucet(ALICE.address, 100)
    network.token.approve(BOB.address, 10, who=ALICE.address)
    network.token.transferFrom(ALICE.address, BOB.address, 4, who=BOB.address)
    assert network.token.allowance(ALICE.address, BOB.address) == 6
    network.token.approve(BOB.address, MAX, who=ALICE.address)
    network.token.transferFrom(ALICE.address, BOB.address, 4, who=BOB.address)
    assert network.token.allowance(ALICE.address, BOB.address) == MAX


def test_a_permit_allows_once(network: Network) -> None:
    signed = permit(network, amount=7, deadline=now())
    network.token.permit(*signed)
    assert network.token.allowance(ALICE.address, BOB.address) == 7
    with refused("NOT_SIGNED_BY_OWNER"):
        network.token.permit(*signed)


def test_a_permit_for_another_amount_or_too_late_is_refused(network: Network) -> None:
    owner, spender, amount, deadline, *signature = permit(network, amount=7, deadline=now() + 5)
    with refused("NOT_SIGNED_BY_OWNER"):
        network.token.permit(owner, spender, 8, deadline, *signature)
    wait(6)
    with refused("DEADLINE_PASSED"):
        network.token.permit(owner, spender, amount, deadline, *signature)


@pytest.mark.parametrize("chain_id", [1, 10, 8453, 11_155_111, 31_338])
def test_a_token_that_anyone_can_mint_is_refused_on_a_public_chain(chain_id: int) -> None:
    set_chain_id(chain_id)
    try:
        with refused("NOT_A_LOCAL_CHAIN"):
            deploy("token")
    finally:
        set_chain_id(CHAIN_ID)


def test_local_chains_have_it(network: Network) -> None:
    set_chain_id(1337)
    try:
        assert deploy("token").totalSupply() == 0
    finally:
        set_chain_id(CHAIN_ID)
    assert network.token.decimals() == 6


def test_the_faucet_has_a_bound(network: Network) -> None:
    with refused("TOO_MUCH"):
        network.token.faucet(ALICE.address, network.token.FAUCET_MAX() + 1)
    with refused("ZERO_ADDRESS"):
        network.token.faucet("0x" + "0" * 40, 1)
