"""Nodes of an owner, and the service that makes providers of them, on the real contracts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from sparewatt.core.clock import SystemClock
from sparewatt.core.ids import AccountId, NodeId
from sparewatt.core.money import Nano
from sparewatt.leasing.node_keys import NodeKeyRequests
from sparewatt.leasing.provider_service import ProviderService
from sparewatt.ledger.chain_request_client import ChainRequestClient
from sparewatt.ledger.deposit_adapters import ChainPaymentAdapter
from sparewatt.ledger.rules import grant_postings
from sparewatt.node.leases.node_key import sign_node_key
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.protocol.signing import SigningKey
from sparewatt.store.ledger import Transfer
from tests.integration.chain.settling import Settling
from tests.integration.chain.stepped_chain import CUSTODY

SPECS = NodeSpecs(
    name="n",
    region="de-berlin",
    gpu="RTX 4090",
    gpu_count=1,
    vram_bytes=24 << 30,
    tflops=80.0,
    hourly_price_nano=300_000_000,
    slots=4,
    backend="test",
    agent_version="1",
    leases=True,
)
DOLLAR = Nano(10**9)
_T = TypeVar("_T")


def node_key(number: int) -> SigningKey:
    return SigningKey(bytes(30) + b"\x33" + bytes([number]))


@dataclass(slots=True)
class Offering:
    settling: Settling
    keys: dict[NodeId, SigningKey] = field(default_factory=dict)
    asked: list[NodeKeyRequest] = field(default_factory=list)
    service: ProviderService = field(init=False)

    def __post_init__(self) -> None:
        database, clock = self.settling.database, SystemClock()
        self.service = ProviderService(
            database=database,
            requests=ChainRequestClient(database.chain_requests, clock),
            node_keys=NodeKeyRequests(send=self._send),
            custody=CUSTODY,
            claim=ChainPaymentAdapter(database, clock).claim,
            specs_of=lambda node_id: SPECS if node_id in self.keys else None,
            is_test_money=True,
            free_idle_slices=None,
        )

    def _send(self, node_id: NodeId, request: NodeKeyRequest) -> bool:
        """The node answers at once, as an honest agent whose owner offers leases."""
        self.asked.append(request)
        signed = sign_node_key(request, key=self.keys[node_id], offers_leases=True, wallet=None)
        asyncio.get_running_loop().call_soon(self.service.node_keys.receive, node_id, signed)
        return True

    async def join(self, owner: AccountId, number: int) -> NodeId:
        key = node_key(number)
        node_id, token = NodeId(key.address), bytes([number]) * 32
        database = self.settling.database
        await database.insert_join_token(token, account_id=owner, created_by=None, life_s=60.0)
        assert await database.exchange_join_token(token, node_id) == "accepted"
        await database.save_nodes([(node_id, msgspec.structs.replace(SPECS, name=f"n{number}"), 1.0)])
        self.keys[node_id] = key
        return node_id

    async def grant(self, account: AccountId, nano: Nano) -> None:
        lines = tuple(grant_postings(account, nano))
        await self.settling.database.ledger.post_transfer(
            Transfer(f"grant:{account}:{nano}", "grant", account, nano, lines, SystemClock().unix_s())
        )

    async def done(self, asking: Coroutine[Any, Any, _T]) -> _T:
        """What a gateway answers, while the chain's process works."""
        task = asyncio.ensure_future(asking)
        await self.until(_is_done(task), "no answer")
        return task.result()

    async def all_done(self, *asking: Coroutine[Any, Any, _T]) -> list[_T]:
        return await self.done(_gathered(asking))

    async def until(self, holds: Any, what: str) -> None:
        await self.settling.until(holds, what)

    async def free_credits(self, account: AccountId) -> Nano:
        name = f"promo:{account}"
        return (await self.settling.database.ledger.balances([name]))[name]


async def _gathered(asking: tuple[Coroutine[Any, Any, _T], ...]) -> list[_T]:
    return list(await asyncio.gather(*asking))


def _is_done(task: asyncio.Future[Any]) -> Any:
    async def check() -> bool:
        await asyncio.sleep(0.02)
        return task.done()

    return check
