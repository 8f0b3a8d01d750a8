"""A gateway's database as far as orders need it, in memory; the chain takes each order at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sparewatt.core.ids import AccountId
from sparewatt.store.chain import ChainIndexRow
from sparewatt.store.chain_requests import ChainRequestRow, ChainRequestState
from sparewatt.store.lease_orders import LeaseOrderRow, LeaseOrderStore, LeaseSpec, NewLeaseBatch
from sparewatt.store.pockets import PocketStore
from sparewatt.store.uptime_credits import UptimeCreditRow, UptimeCreditStore
from tests.unit.leasing.memory_market import MarketDatabase, MemoryChain

UNIX_S = 1_700_000_000.0


class MemoryOrders(LeaseOrderStore):
    def __init__(self, requests: dict[str, ChainRequestRow]) -> None:
        self.rows: list[LeaseOrderRow] = []
        self.specs: dict[str, LeaseSpec] = {}
        self.is_full = False
        self.order_ids: list[str] = []
        """Of the next orders; none: they are not on the chain yet."""
        self._requests = requests

    async def insert(self, batch: NewLeaseBatch, **_: Any) -> bool:
        if self.is_full or any(order.request.id in self._requests for order in batch.orders):
            return False
        self.specs[batch.spec.spec_hash] = batch.spec
        for order in batch.orders:
            new = order.request
            self._requests[new.id] = ChainRequestRow(
                new.id, new.kind, new.account_id, new.address, new.micro, new.params
            )
            content = batch.spec.content
            self.rows.append(
                LeaseOrderRow(
                    lease_id=order.lease_id,
                    account_id=batch.account_id,
                    batch=batch.reference,
                    name=batch.name,
                    asked_hash=batch.asked_hash,
                    spec_hash=batch.spec.spec_hash,
                    specification=batch.spec.specification,
                    image="me/train:1",
                    secrets=(),
                    content=content,
                    created_unix_s=UNIX_S + len(self.rows),
                    deposit_micro=new.micro,
                    params=new.params,
                    state=ChainRequestState.DECIDED,
                    reason=None,
                    tx=None,
                    order_id=self.order_ids.pop(0) if self.order_ids else None,
                    max_spend_micro=batch.max_spend_micro,
                )
            )
        return True

    async def set_max_spend(self, account_id: AccountId, lease_id: str, *, micro: int) -> None:
        self.rows = [
            replace(row, max_spend_micro=micro) if (row.account_id, row.lease_id) == (account_id, lease_id) else row
            for row in self.rows
        ]

    async def top_ups_under_way_micro(self, _account_id: AccountId, _order_id: str) -> int:
        return 0

    def fail(self, lease_id: str, reason: str) -> None:
        self.rows = [
            replace(row, state=ChainRequestState.FAILED, reason=reason) if row.lease_id == lease_id else row
            for row in self.rows
        ]

    async def find_batch(self, account_id: AccountId, reference: str, *, limit: int) -> list[LeaseOrderRow]:
        return [row for row in self._of(account_id) if row.batch == reference][:limit]

    async def find(self, account_id: AccountId, wanted: str, *, limit: int) -> list[LeaseOrderRow]:
        found = [row for row in self._of(account_id) if wanted in (row.lease_id, row.name, row.order_id)]
        return found[:limit]

    async def list_of(
        self, account_id: AccountId, *, before: tuple[float, str] | None, limit: int
    ) -> list[LeaseOrderRow]:
        older = [row for row in self._of(account_id) if before is None or (row.created_unix_s, row.lease_id) < before]
        return list(reversed(older))[:limit]

    def _of(self, account_id: AccountId) -> list[LeaseOrderRow]:
        return [row for row in self.rows if row.account_id == account_id]


class MemoryPockets(PocketStore):
    def __init__(self) -> None:
        self.on_chain_micro = 0

    async def payable_micro(self, _: str) -> int:
        return self.on_chain_micro


class OrderChain(MemoryChain):
    async def index(self) -> ChainIndexRow | None:
        found = await super().index()
        return None if found is None else replace(found, contracts={"deployment_order": "0x" + "f" * 40})


class NoUptimeRulings(UptimeCreditStore):
    """Of leases that have not ended."""

    def __init__(self) -> None:
        """Nothing to read."""

    async def find(self, order_ids: Sequence[str]) -> dict[str, UptimeCreditRow]:
        return {}


class OrderDatabase(MarketDatabase):
    def __init__(self) -> None:
        super().__init__()
        self.uptime_credits = NoUptimeRulings()
        self.lease_orders = self.orders = MemoryOrders(self.sent.rows)
        self.pockets = self.purse = MemoryPockets()
        self.chain = self.index_of = OrderChain()
