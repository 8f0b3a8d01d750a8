"""Access rights of the provider registry, and from when a node key is valid."""

from __future__ import annotations

import pytest

from sparewatt.protocol.contracts.meta_transactions import NodeKey
from sparewatt.protocol.signing import SigningKey
from tests.evm.machine import deploy, now, refused, wait
from tests.evm.network import ATTEMPT_S, GUARDIAN, Network, key

REGISTERED, ACTIVE, MAINTENANCE, SUSPENDED, LEFT = range(1, 6)
CLAIMS = (1, 2, 3, 4, 24, 8, 1, b"\1" * 32)
NEWCOMER, NODE, AUDITOR = key(31), key(32), key(33)


def proof(network: Network, owner: str, node: SigningKey) -> tuple[str, bytes]:
    return node.address, network.signed(node, network.registry, NodeKey(owner, node.address))


def register(network: Network) -> None:
    network.registry.register(CLAIMS, *proof(network, NEWCOMER.address, NODE), who=NEWCOMER.address)


def test_a_provider_registers_once(network: Network) -> None:
    register(network)
    assert network.registry.status_of(NEWCOMER.address) == REGISTERED
    assert network.registry.claims_of(NEWCOMER.address) == CLAIMS
    with refused("ALREADY_REGISTERED"):
        register(network)


def test_nobody_claims_a_node_whose_key_did_not_agree(network: Network) -> None:
    _, signature = proof(network, NEWCOMER.address, NODE)
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        network.registry.register(CLAIMS, AUDITOR.address, signature, who=NEWCOMER.address)
    with refused("NOT_SIGNED_BY_NODE_KEY"):
        network.registry.register(CLAIMS, NODE.address, signature, who=AUDITOR.address)


@pytest.mark.parametrize(
    "claims",
    [
        (1, 32, 3, 4, 24, 8, 1, b"\1" * 32),
        (1, 2, 3, 4, 0, 0, 1, b"\1" * 32),  # a GPU model without a GPU
        (1, 2, 3, 0, 24, 1, 1, b"\1" * 32),  # a GPU of no model
        (1, 2, 3, 0, 24, 0, 1, b"\1" * 32),  # memory of no GPU
    ],
)
def test_impossible_claims_are_refused(network: Network, claims: tuple[object, ...]) -> None:
    with refused("BAD_CLAIMS"):
        network.registry.register(claims, *proof(network, NEWCOMER.address, NODE), who=NEWCOMER.address)


def test_a_machine_without_a_gpu_registers(network: Network) -> None:
    claims = (1, 2, 3, 0, 0, 0, 1, b"\1" * 32)
    network.registry.register(claims, *proof(network, NEWCOMER.address, NODE), who=NEWCOMER.address)
    network.registry.set_status(ACTIVE, who=NEWCOMER.address)
    assert network.registry.claims_of(NEWCOMER.address) == claims


def test_a_node_key_serves_one_provider_for_ever(network: Network) -> None:
    """One machine does not bid twice, not even after it has left or changed its key."""
    register(network)
    other = key(35).address
    with refused("KEY_TAKEN"):
        network.registry.register(CLAIMS, *proof(network, other, NODE), who=other)
    wait(ATTEMPT_S + 1)
    network.registry.set_node_key(*proof(network, NEWCOMER.address, key(34)), who=NEWCOMER.address)
    network.registry.set_status(LEFT, who=NEWCOMER.address)
    with refused("KEY_TAKEN"):
        network.registry.register(CLAIMS, *proof(network, other, NODE), who=other)
    assert network.registry.service_of(NODE.address)[0] == NEWCOMER.address


def test_a_replaced_key_is_not_taken_back(network: Network) -> None:
    """It counted for one time: otherwise evidence of that time could be lost by changing there and back."""
    register(network)
    wait(ATTEMPT_S + 1)
    network.registry.set_node_key(*proof(network, NEWCOMER.address, key(34)), who=NEWCOMER.address)
    wait(ATTEMPT_S + 1)
    for used in (NODE, key(34)):
        with refused("KEY_TAKEN"):
            network.registry.set_node_key(*proof(network, NEWCOMER.address, used), who=NEWCOMER.address)


def test_who_left_comes_back_with_the_same_key_at_once(network: Network) -> None:
    register(network)
    network.registry.set_status(LEFT, who=NEWCOMER.address)
    register(network)
    assert network.registry.node_key_of(NEWCOMER.address)[0] == NODE.address


def test_a_key_is_known_for_its_time_after_any_number_of_changes(network: Network) -> None:
    register(network)
    registered = now()
    changed = []
    for number in (34, 35, 36):
        wait(ATTEMPT_S + 1)
        network.registry.set_node_key(*proof(network, NEWCOMER.address, key(number)), who=NEWCOMER.address)
        changed.append(now())

    def counted(time: int) -> bool:
        return bool(network.registry.was_node_key(NEWCOMER.address, NODE.address, time))

    assert [counted(t) for t in (registered, registered + 1, changed[0], changed[0] + 1)] == [False, True, True, False]
    assert not network.registry.was_node_key(key(35).address, NODE.address, changed[0])
    assert network.registry.was_node_key(NEWCOMER.address, key(36).address, 2**256 - 1)


def test_claims_and_keys_belong_to_registered_providers(network: Network) -> None:
    with refused("NOT_REGISTERED"):
        network.registry.set_claims(CLAIMS, who=NEWCOMER.address)
    with refused("NOT_REGISTERED"):
        network.registry.set_node_key(*proof(network, NEWCOMER.address, NODE), who=NEWCOMER.address)


ALLOWED = {(REGISTERED, ACTIVE), (MAINTENANCE, ACTIVE), (ACTIVE, MAINTENANCE)}
ALLOWED |= {(status, LEFT) for status in (REGISTERED, ACTIVE, MAINTENANCE)}


@pytest.mark.parametrize("start", [0, REGISTERED, ACTIVE, MAINTENANCE, SUSPENDED, LEFT])
@pytest.mark.parametrize("end", [0, REGISTERED, ACTIVE, MAINTENANCE, SUSPENDED, LEFT, 6, 255])
def test_a_provider_changes_its_status_by_allowed_transitions_only(network: Network, start: int, end: int) -> None:
    me = NEWCOMER.address
    if start:
        register(network)
    for step in {ACTIVE: [ACTIVE], MAINTENANCE: [ACTIVE, MAINTENANCE], LEFT: [LEFT]}.get(start, []):
        network.registry.set_status(step, who=me)
    if start == SUSPENDED:
        network.registry.suspend(me, b"\1" * 32, who=GUARDIAN)
    if (start, end) in ALLOWED:
        network.registry.set_status(end, who=me)
        assert network.registry.status_of(me) == end
    else:
        with refused("WRONG_STATUS"):
            network.registry.set_status(end, who=me)


def test_the_guardian_suspends_and_reinstates(network: Network) -> None:
    register(network)
    with refused("NOT_GUARDIAN"):
        network.registry.suspend(NEWCOMER.address, b"\1" * 32, who=NEWCOMER.address)
    network.registry.suspend(NEWCOMER.address, b"\1" * 32, who=GUARDIAN)
    with refused("WRONG_STATUS"):
        network.registry.suspend(NEWCOMER.address, b"\1" * 32, who=GUARDIAN)
    with refused("NOT_GUARDIAN"):
        network.registry.reinstate(NEWCOMER.address, who=NEWCOMER.address)
    network.registry.reinstate(NEWCOMER.address, who=GUARDIAN)
    with refused("WRONG_STATUS"):
        network.registry.reinstate(NEWCOMER.address, who=GUARDIAN)


def test_the_guardian_hands_over_in_two_steps(network: Network) -> None:
    with refused("NOT_GUARDIAN"):
        network.registry.propose_guardian(AUDITOR.address, who=AUDITOR.address)
    network.registry.propose_guardian(AUDITOR.address, who=GUARDIAN)
    with refused("NOT_GUARDIAN"):
        network.registry.accept_guardian(who=NEWCOMER.address)
    network.registry.accept_guardian(who=AUDITOR.address)
    assert network.registry.guardian() == AUDITOR.address


def test_an_auditor_attests_to_what_it_checked(network: Network) -> None:
    register(network)
    attest = (NEWCOMER.address, 0, b"\4" * 32, now() + 10)
    with refused("NOT_AUDITOR"):
        network.registry.attest(*attest, who=AUDITOR.address)
    with refused("NOT_GUARDIAN"):
        network.registry.set_auditor(AUDITOR.address, True, who=AUDITOR.address)
    network.registry.set_auditor(AUDITOR.address, True, who=GUARDIAN)
    network.registry.attest(*attest, who=AUDITOR.address)
    assert network.registry.attestation_of(NEWCOMER.address, AUDITOR.address, 0) == attest[2:]
    with refused("UNKNOWN_TOPIC"):
        network.registry.attest(NEWCOMER.address, 3, b"\4" * 32, 0, who=AUDITOR.address)
    with refused("NOT_REGISTERED"):
        network.registry.attest(NODE.address, 0, b"\4" * 32, 0, who=AUDITOR.address)


def test_a_new_node_key_counts_for_orders_opened_after_it(network: Network) -> None:
    register(network)
    wait(ATTEMPT_S + 1)
    new = key(34)
    network.registry.set_node_key(*proof(network, NEWCOMER.address, new), who=NEWCOMER.address)
    assert network.registry.node_key_at(NEWCOMER.address, now()) == NODE.address
    assert network.registry.node_key_at(NEWCOMER.address, now() + 1) == new.address


def test_a_node_key_changes_once_per_attempt(network: Network) -> None:
    register(network)
    wait(ATTEMPT_S)
    with refused("CHANGED_TOO_RECENTLY"):
        network.registry.set_node_key(*proof(network, NEWCOMER.address, key(34)), who=NEWCOMER.address)


def test_a_registry_needs_a_guardian(network: Network) -> None:
    with refused("ZERO_ADDRESS"):
        deploy("provider_registry", "0x" + "0" * 40, network.stakes.address)
