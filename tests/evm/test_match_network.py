"""Simulated matches end on the real contracts: the certificate is accepted, and liars, and nobody else, are slashed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparewatt.market.faults import MarketFault, ProvenFault, find_faults
from sparewatt.market.match.model import QuorumCertificate
from sparewatt.market.match.record import read_record, write_record
from sparewatt.market.match.replay import pool_of, replay
from sparewatt.market.quorum import leader_of_match
from sparewatt.protocol.contracts.match import NO_LEAF
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order, place_order
from tests.evm.machine import Reverted, rolled_back
from tests.evm.network import USD, Network
from tests.evm.public_data import chain_context, history_indices, prove, slashed_keys
from tests.market_network.invariants import recorded, violations
from tests.market_network.memory import remembered
from tests.market_network.scenario import Lie, Scenario, Trick
from tests.market_network.world import SPECIFICATION, Cast, ProviderKeys, World, simulate

SEVEN: dict[str, Any] = {"weights": (1,) * 7, "lookups_ms": (0,) * 7, "drifts": (1.0,) * 7, "offsets_ms": (0,) * 7}
TRICKS = (Trick.NONE, Trick.NONE, Trick.OVER_CAP, Trick.UNREVEALED, Trick.DOUBLE)
PRICES = (2 * USD, USD, USD, USD, 3 * USD // 2)


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with remembered():
        yield


def simulated(order: Order, *, seed: int, lie: Lie | None, leads: bool = True, loss: float = 0.0) -> World:
    """The network's own validators and providers, with the liar as the first leader or the last."""
    network = order.network
    context = replace(chain_context(order), spec_hash=struct_hash(SPECIFICATION))
    keys = tuple(validator.vote_key for validator in network.validators)
    providers = tuple(ProviderKeys(each.address, each.node_key) for each in network.providers)
    leader = leader_of_match(context.weights, order_id=context.order_id, attempt=0, round_=0 if leads else 6)
    liar = next(i for i, key in enumerate(keys) if key.address.lower() == leader)
    scenario = Scenario(
        seed=seed, lies={} if lie is None else {liar: lie}, tricks=TRICKS, prices=PRICES, loss=loss, **SEVEN
    )
    return simulate(scenario, cast=Cast(context, keys, providers))


def accept(order: Order, certificate: QuorumCertificate) -> None:
    """As whoever submits it would."""
    tasks, task = order.network.tasks, certificate.task
    indices = history_indices(order.network)
    votes = [(vote.signature, indices[key]) for vote, key in zip(certificate.votes, certificate.signers, strict=True)]
    if task.first == NO_LEAF:
        tasks.accept_no_match(task.values(), certificate.round, votes)
        return
    shown = zip(certificate.leaves, certificate.paths, certificate.commits, strict=True)
    candidates = [(leaf.values(), path, commit.signature) for leaf, path, commit in shown]
    tasks.accept_match(task.values(), certificate.round, certificate.terms.values(), candidates, votes)


def faults_of(world: World, order: Order) -> tuple[ProvenFault, ...]:
    """From what the honest validators publish, and the chain."""
    accepted = world.chain.accepted
    assert accepted is not None
    records = [each.last_record for each in world.validators if each.is_honest and each.last_record is not None]
    public = [read_record(json.loads(json.dumps(write_record(record)))) for record in records]
    record = recorded(world.context.terms, accepted)
    return find_faults(pool_of(public), indices=history_indices(order.network), accepted=record)


def prove_all(network: Network, faults: tuple[ProvenFault, ...]) -> None:
    """A fault of a second round is refused as punished already."""
    for fault in faults:
        try:
            prove(network, [fault])
        except Reverted as reverted:
            assert reverted.reason == "ALREADY_PUNISHED", fault  # noqa: PT017


@pytest.mark.parametrize("lie", [None, *Lie])
def test_the_certificate_is_accepted_and_only_liars_are_slashed(network: Network, lie: Lie | None) -> None:
    proven: set[MarketFault] = set()
    for seed in range(4):
        with rolled_back():
            order = place_order(network)
            world = simulated(order, seed=seed, lie=lie, leads=seed % 2 == 0, loss=0.1 * (seed % 3))
            assert violations(world) == []
            accepted = world.chain.accepted
            assert accepted is not None
            accept(order, accepted)
            faults = faults_of(world, order)
            prove_all(network, faults)
            liars = {each.address for each in world.validators if not each.is_honest}
            culprits = {culprit for fault in faults for culprit in fault.culprits}
            assert slashed_keys(network) == culprits & {each.address for each in world.validators}
            assert slashed_keys(network) <= liars
            proven |= {fault.fault for fault in faults}
    expected = {
        Lie.EQUIVOCATING: {MarketFault.DOUBLE_SIGN},
        Lie.SPLITTING: {MarketFault.DOUBLE_SIGN},
        Lie.OMITTING: {MarketFault.OMISSION},
        Lie.WRONG_RESULT: {MarketFault.DOUBLE_SIGN},
    }
    assert proven >= {MarketFault.TWO_COMMITS, *(expected.get(lie, set()) if lie else set())}


def test_a_bidder_that_does_not_reveal_pays_and_the_others_do_not(network: Network) -> None:
    order = place_order(network)
    world = simulated(order, seed=1, lie=None)
    assert world.chain.accepted is not None
    accept(order, world.chain.accepted)
    before = {each.address: network.stakes.bond_of(each.address)[0] for each in network.providers}
    locked = {each.address: network.stakes.bond_of(each.address)[1] for each in network.providers}
    prove_all(network, faults_of(world, order))
    lost = {
        i for i, each in enumerate(network.providers)
        if network.stakes.bond_of(each.address)[:2] != (before[each.address], locked[each.address])
    }  # fmt: skip
    assert lost == {3, 4}


def test_the_lease_goes_to_whom_every_replay_names(network: Network) -> None:
    order = place_order(network)
    world = simulated(order, seed=2, lie=Lie.SLOW)
    accepted = world.chain.accepted
    assert accepted is not None
    accept(order, accepted)
    for validator in world.validators:
        if validator.is_honest and validator.last_record is not None:
            again = replay(validator.last_record, accepted=accepted.task)
            assert again.differences == ()
            assert again.winner is not None
            assert again.winner.provider == order.lease["provider"].lower()
