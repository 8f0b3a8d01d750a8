"""Reads an order, its validators and a lease's place from the chain's node that the owner chose, if there is one.

With it, the gateway's word on them counts for nothing: a lookup that differs from the chain gets no bid. The contracts'
addresses are the gateway's, but they are read from each other and the order's id names one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.errors import ChainRefused, ChainReverted, ChainUnavailable
from sparewatt.evm.abi_codec import AbiError
from sparewatt.evm.client import EvmClient
from sparewatt.evm.contract_abi import Contract, shipped_abis
from sparewatt.evm.json_rpc import HttpTransport, RpcClient
from sparewatt.market.chain_records import LeaseState, OrderState
from sparewatt.node.leases.lookup_check import CheckedLookup
from sparewatt.protocol.link.lease_frames import MarketFacts

CATCH_UP_POLL_S = 0.05
HEAD_POLL_S = 10.0
HISTORY_MAX = 64
"""Changes of one validator's stake that are searched, from the newest."""
PLACED_STATES = frozenset({LeaseState.PENDING.value, LeaseState.ACTIVE.value, LeaseState.PAUSED.value})
"""Of a lease that has a provider."""
_FAULTS = (ChainUnavailable, ChainRefused, ChainReverted, AbiError, ValueError)


class ChainDiffers(Exception):
    """The chain says something else than the gateway, or nothing in time. Its text says what."""


@dataclass(slots=True, kw_only=True, eq=False)
class ChainCheck:
    client: EvmClient
    clock: Clock
    height: int | None = field(init=False, default=None)
    """The newest block; None before the first answer."""
    trouble: str | None = field(init=False, default=None)
    _transport: HttpTransport | None = None

    @classmethod
    def at(cls, url: str, *, clock: Clock) -> ChainCheck:
        transport = HttpTransport(url)
        return cls(client=EvmClient(RpcClient(transport, clock, tries=1)), clock=clock, _transport=transport)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()

    async def run(self) -> None:
        """Keeps the height known."""
        while True:
            await self.refresh()
            await sleep_until(self.clock, self.clock.now_s() + HEAD_POLL_S)

    async def refresh(self) -> None:
        try:
            self.height = (await self.client.head()).number
            self.trouble = None
        except _FAULTS as error:
            self.trouble = str(error)

    async def check_order(self, checked: CheckedLookup, facts: MarketFacts, *, block: int, within_s: float) -> None:
        """Raises ChainDiffers: then the node does not bid."""
        try:
            async with asyncio.timeout(within_s):
                await self._catch_up(block)
                await self._check_identity(facts)
                await self._check_order(checked, facts)
                await self._check_weights(checked, facts)
        except TimeoutError:
            raise ChainDiffers(f"its own chain is behind block {block}, or slow") from None
        except _FAULTS as error:
            self.trouble = str(error)
            raise ChainDiffers(f"its own chain does not answer: {error}") from None

    async def validator_urls(self, vote_keys: Mapping[str, int], facts: MarketFacts) -> dict[str, str]:
        """As they stand in the registry. Raises ChainDiffers."""
        stakes = _contract("stake_registry", facts.stake_registry)
        try:
            operators = await asyncio.gather(*(self._call(stakes, "operator_of", key) for key in vote_keys))
            urls = await asyncio.gather(*(self._call(stakes, "url_of", operator) for operator in operators))
        except _FAULTS as error:
            raise ChainDiffers(f"its own chain does not answer: {error}") from None
        return dict(zip(vote_keys, map(str, urls), strict=True))

    async def placed_term(self, order_id: bytes, facts: MarketFacts) -> int | None:
        """The term at which this node's provider has the lease; None if it has not. Raises ChainDiffers."""
        orders = _contract("deployment_order", facts.deployment_order)
        try:
            lease = await self._call(orders, "lease_of", order_id)
        except _FAULTS as error:
            raise ChainDiffers(f"its own chain does not answer: {error}") from None
        provider, state, _, _, _, term = lease[:6]
        return int(term) if str(provider).lower() == facts.provider and state in PLACED_STATES else None

    async def _catch_up(self, block: int) -> None:
        while True:
            self.height = (await self.client.head()).number
            if self.height >= block:
                return
            await sleep_until(self.clock, self.clock.now_s() + CATCH_UP_POLL_S)

    async def _check_identity(self, facts: MarketFacts) -> None:
        chain_id = (await self.client.identity()).chain_id
        if chain_id != facts.chain_id:
            raise ChainDiffers(f"its own chain has the id {chain_id}, the gateway's {facts.chain_id}")

    async def _check_order(self, checked: CheckedLookup, facts: MarketFacts) -> None:
        orders = _contract("deployment_order", facts.deployment_order)
        order, stakes, tasks = await asyncio.gather(
            self._call(orders, "order_of", checked.order_id),
            self._call(orders, "stakes"),
            self._call(orders, "tasks"),
        )
        renter, state, _, attempt, version, _, _, policy_hash, spec_hash = order
        said = (checked.renter, checked.attempt, checked.stake_version, checked.policy_hash, checked.spec_hash)
        if (str(renter).lower(), attempt, version, policy_hash, spec_hash) != said or state != OrderState.OPEN.value:
            raise ChainDiffers("the order on its own chain is another, or is not open")
        if (str(stakes).lower(), str(tasks).lower()) != (facts.stake_registry, facts.task_manager):
            raise ChainDiffers("the contracts on its own chain are others")

    async def _check_weights(self, checked: CheckedLookup, facts: MarketFacts) -> None:
        """Each validator's weight, and their sum: so none is left out either."""
        stakes = _contract("stake_registry", facts.stake_registry)
        total = await self._call(stakes, "total_at", checked.stake_version)
        weights = await asyncio.gather(
            *(self._weight_at(stakes, vote_key, checked.stake_version) for vote_key in checked.weights)
        )
        if weights != list(checked.weights.values()) or sum(weights) != total:
            raise ChainDiffers("the validators' stakes on its own chain are others")

    async def _weight_at(self, stakes: Contract, vote_key: str, version: int) -> int:
        length = int(await self._call(stakes, "history_length", vote_key))
        for index in range(length - 1, max(-1, length - 1 - HISTORY_MAX), -1):
            changed_at, weight = await self._call(stakes, "history_at", vote_key, index)
            if changed_at <= version:
                return int(weight)
        return 0

    async def _call(self, contract: Contract, function: str, *args: object) -> Any:
        data = await self.client.call(contract.encode_call(function, *args))
        return contract.decode_result(function, data, n_args=len(args))


def _contract(name: str, address: str) -> Contract:
    return Contract(name, address, shipped_abis()[name].abi)
