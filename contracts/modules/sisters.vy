# pragma version 0.4.3
"""
@title The contracts that orders and leases work with, fixed at deployment
"""

from contracts.interfaces import IEscrow
from contracts.interfaces import IProviderRegistry
from contracts.interfaces import IStakeRegistry
from contracts.interfaces import ITasks

registry: public(immutable(IProviderRegistry))
stakes: public(immutable(IStakeRegistry))
escrow: public(immutable(IEscrow))
tasks: public(immutable(ITasks))

SUSPENDED: constant(uint8) = 4  # a provider's status


@deploy
def __init__(registry_: address, stakes_: address, escrow_: address, tasks_: address):
    """
    @notice Set the contracts.
    @param registry_ The provider registry.
    @param stakes_ The stake registry.
    @param escrow_ The escrow.
    @param tasks_ The task manager.
    """
    assert empty(address) not in [registry_, stakes_, escrow_, tasks_], "ZERO_ADDRESS"
    registry = IProviderRegistry(registry_)
    stakes = IStakeRegistry(stakes_)
    escrow = IEscrow(escrow_)
    tasks = ITasks(tasks_)


@internal
@view
def _acts_for(caller: address, provider: address) -> bool:
    """The provider itself, or its current node key."""
    return caller == provider or caller == staticcall registry.node_key_at(provider, max_value(uint256))


@internal
@view
def _is_suspended(provider: address) -> bool:
    return staticcall registry.status_of(provider) == SUSPENDED
