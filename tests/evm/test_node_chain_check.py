"""A node that reads orders, validators and leases from the compiled contracts, and finds each lie of a gateway."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.evm.client import EvmClient
from sparewatt.evm.model import BlockHeader, ChainIdentity, ContractCall
from sparewatt.node.leases.chain_check import ChainCheck, ChainDiffers
from sparewatt.node.leases.lookup_check import CheckedLookup
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.typed_message import struct_hash
from tests.evm.auction import Order, place_order
from tests.evm.machine import CHAIN_ID, Contract, now, wait
from tests.evm.network import USD, Network

HEIGHT = 7


class MachineClient(EvmClient):
    """Reads the chain of the machine."""

    def __init__(self, contracts: list[Contract]) -> None:
        object.__setattr__(self, "contracts", {contract.address.lower(): contract for contract in contracts})

    async def identity(self) -> ChainIdentity:
        return ChainIdentity(CHAIN_ID, bytes(32))

    async def head(self) -> BlockHeader:
        return BlockHeader(HEIGHT, bytes(32), bytes(32), now(), 0)

    async def call(self, call: ContractCall, *, sender: str | None = None, at_block: int | None = None) -> bytes:
        contracts: dict[str, Contract] = self.contracts  # type: ignore[attr-defined]
        return contracts[call.to].raw(call.data, who="0x" + "99" * 20)


def facts_of(network: Network, **changes: Any) -> MarketFacts:
    facts = MarketFacts(
        chain_id=CHAIN_ID,
        task_manager=network.tasks.address.lower(),
        deployment_order=network.orders.address.lower(),
        stake_registry=network.stakes.address.lower(),
        provider=network.providers[0].address.lower(),
        stake_version=network.stakes.version(),
        validators=(),
        beat_ms=2_000,
        attempt_s=60,
        block_number=HEIGHT,
    )
    return msgspec.structs.replace(facts, **changes)


def checked_of(order: Order) -> CheckedLookup:
    """What the node has after it checked an honest lookup against itself."""
    stakes, voters = order.network.stakes, [validator.vote_key.address for validator in order.network.validators]
    weights = {key.lower(): stakes.history_at(key, stakes.history_length(key) - 1)[1] for key in voters}
    return CheckedLookup(
        order_id=order.order_id,
        attempt=order.attempt,
        renter=order.renter.address.lower(),
        order=None,
        terms=order.policy,
        specification=None,  # type: ignore[arg-type]
        policy_hash=struct_hash(order.policy),
        spec_hash=b"\3" * 32,
        stake_version=order.stake_version,
        weights=weights,
    )


def check_of(network: Network) -> ChainCheck:
    client = MachineClient([network.orders, network.stakes, network.tasks])
    return ChainCheck(client=client, clock=SystemClock())


def check(network: Network, checked: CheckedLookup, *, block: int = HEIGHT, **facts: Any) -> None:
    given = facts_of(network, **facts)
    asyncio.run(check_of(network).check_order(checked, given, block=block, within_s=5))


def test_an_order_that_is_on_the_chain_passes(order: Order) -> None:
    check(order.network, checked_of(order))


def test_weights_are_those_of_the_orders_version(network: Network) -> None:
    order = place_order(network)
    checked = checked_of(order)
    network.add_stake(network.validators[0].operator.address, 10 * USD)
    check(network, checked)
    with pytest.raises(ChainDiffers, match="stakes"):
        check(network, checked_of(order))


LIES: dict[str, dict[str, Any]] = {
    "an order that nobody made": {"order_id": b"\7" * 32},
    "a later attempt": {"attempt": 1},
    "another renter": {"renter": "0x" + "1" * 40},
    "another policy": {"policy_hash": b"\1" * 32},
    "another specification": {"spec_hash": b"\4" * 32},
    "another version of the stakes": {"stake_version": 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_the_order_is_found(order: Order, lie: str) -> None:
    with pytest.raises(ChainDiffers):
        check(order.network, replace(checked_of(order), **LIES[lie]))


def test_a_lie_about_the_validators_is_found(order: Order) -> None:
    """Left out, invented or weighed anew: a gateway with its own validators would have every price."""
    honest = checked_of(order)
    first, *others = honest.weights.items()
    for weights in (
        dict(others),
        dict([(first[0], first[1] + 1), *others]),
        {**honest.weights, "0x" + "5" * 40: 10**9},
    ):
        with pytest.raises(ChainDiffers, match="stakes"):
            check(order.network, replace(honest, weights=weights))


def test_a_lie_about_the_contracts_is_found(order: Order) -> None:
    with pytest.raises(ChainDiffers, match="contracts"):
        check(order.network, checked_of(order), stake_registry="0x" + "6" * 40)
    with pytest.raises(ChainDiffers, match="contracts"):
        check(order.network, checked_of(order), task_manager="0x" + "6" * 40)
    with pytest.raises(ChainDiffers, match="id"):
        check(order.network, checked_of(order), chain_id=1)


def test_an_order_that_is_matched_is_not_bid_on(order: Order) -> None:
    order.match({0: USD, 1: 2 * USD})
    with pytest.raises(ChainDiffers, match="not open"):
        check(order.network, checked_of(order))


def test_the_addresses_of_validators_are_the_registrys(order: Order) -> None:
    network, weights = order.network, checked_of(order).weights
    urls = asyncio.run(check_of(network).validator_urls(weights, facts_of(network)))
    assert set(urls) == set(weights)
    assert all(url.startswith("http://v") for url in urls.values())


def test_the_place_of_a_lease_is_the_chains(order: Order) -> None:
    network = order.network

    def term(number: int) -> int | None:
        provider = network.providers[number].address.lower()
        return asyncio.run(check_of(network).placed_term(order.order_id, facts_of(network, provider=provider)))

    assert (term(0), term(1)) == (None, None)
    order.match({0: USD, 1: 2 * USD})
    assert (term(0), term(1)) == (1, None)
    wait(1)
    network.orders.close(order.order_id, 1, who=order.renter.address)
    assert (term(0), term(1)) == (None, None)
