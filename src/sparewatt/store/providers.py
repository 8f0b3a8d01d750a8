"""Providers of leases in Postgres: the sealed key of each, and its state by the chain's events.

A provider is a node. Whoever has a wallet registers a provider with it: that one has no row, and is found by its node
key in the chain's events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sparewatt.core.ids import AccountId, NodeId
from sparewatt.store.connection_pool import Store

PROVIDERS_LISTED_MAX = 1_000
"""Of one account: as many as it may have nodes."""


class ProviderStatus(Enum):
    """As `provider_registry` numbers them."""

    UNREGISTERED = 0
    REGISTERED = 1
    ACTIVE = 2
    MAINTENANCE = 3
    SUSPENDED = 4
    LEFT = 5


@dataclass(frozen=True, slots=True)
class ProviderRow:
    address: str
    node_id: NodeId
    account_id: AccountId
    is_held: bool
    """Whether the network has its key; else its owner's wallet registered it."""


@dataclass(frozen=True, slots=True)
class SealedProviderKey:
    account_id: AccountId
    node_id: NodeId
    sealed: bytes


@dataclass(frozen=True, slots=True)
class BondAmounts:
    """What a provider's bond consists of, in micro-USD."""

    free: int = 0
    locked: int = 0
    unbonding: int = 0

    @property
    def total(self) -> int:
        return self.free + self.locked + self.unbonding


@dataclass(frozen=True, slots=True)
class ProviderState:
    """By the last events in the index, which may still be reorganised away."""

    status: ProviderStatus = ProviderStatus.UNREGISTERED
    bond: BondAmounts = BondAmounts()
    unbonded_unix_s: int | None = None
    """When the unbonding ends that was asked of this network, if one is under way."""


class ProviderStore(Store):
    async def ensure(self, node_id: NodeId, *, account_id: AccountId, address: str, sealed: bytes) -> None:
        """Insert a key, unless the node has one."""
        await self._pool.execute("insert_provider", address, node_id, account_id, sealed)

    async def find_key(self, address: str) -> SealedProviderKey | None:
        return await self._pool.row_as(SealedProviderKey, "find_provider_key", address)

    async def find_by_node(self, node_id: NodeId) -> ProviderRow | None:
        rows = await self._pool.rows_as(ProviderRow, "find_providers", None, node_id, 1)
        return rows[0] if rows else None

    async def find_by_address(self, address: str) -> ProviderRow | None:
        node_id = await self._pool.value("find_node_of_provider", address)
        row = None if node_id is None else await self.find_by_node(NodeId(node_id))
        return row if row is not None and row.address == address else None

    async def list_of(self, account_id: AccountId) -> list[ProviderRow]:
        return await self._pool.rows_as(ProviderRow, "find_providers", account_id, None, PROVIDERS_LISTED_MAX)

    async def states(self, addresses: Sequence[str]) -> Mapping[str, ProviderState]:
        """Of each address, also of one that the chain does not know."""
        rows = await self._pool.rows("provider_states", list(addresses))
        return {row["address"]: _state(row["status"], row["bond"], row["unbonded_unix_s"]) for row in rows}


def _state(status: int | None, bond: str | None, unbonded_unix_s: int | None) -> ProviderState:
    amounts = _bond(bond)
    return ProviderState(_status(status), amounts, unbonded_unix_s if amounts.unbonding else None)


def _status(number: int | None) -> ProviderStatus:
    return ProviderStatus.UNREGISTERED if number is None else ProviderStatus(number)


def _bond(args: str | None) -> BondAmounts:
    if args is None:
        return BondAmounts()
    event = json.loads(args)
    return BondAmounts(int(event["free"]), int(event["locked"]), int(event["unbonding"]))
