"""Fixtures: one deployed network per module, rolled back to a snapshot after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.evm.auction import Order, place_order
from tests.evm.machine import rolled_back
from tests.evm.network import Network, full_network


@pytest.fixture(scope="module")
def deployed() -> Iterator[Network]:
    with rolled_back():
        yield full_network()


@pytest.fixture
def network(deployed: Network) -> Iterator[Network]:
    validators, providers = list(deployed.validators), list(deployed.providers)
    kept = deployed.profiles, deployed.snapshot, deployed.epoch
    with rolled_back():
        yield deployed
    deployed.validators, deployed.providers = validators, providers
    deployed.profiles, deployed.snapshot, deployed.epoch = kept


@pytest.fixture
def order(network: Network) -> Order:
    return place_order(network)
