"""Which leases have a public address, and which of their ports it leads to."""

from __future__ import annotations

from dataclasses import dataclass

from sparewatt.core.ids import AccountId
from sparewatt.store.connection_pool import Store


@dataclass(frozen=True, slots=True)
class LeaseSiteRow:
    lease_id: str
    account_id: AccountId
    port: int


class LeaseSiteStore(Store):
    async def put(self, lease_id: str, account_id: AccountId, port: int) -> LeaseSiteRow | None:
        """None if another account has a lease of this id with a site."""
        return await self._pool.row_as(_site, "put_lease_site", lease_id, account_id, port)

    async def drop(self, lease_id: str, account_id: AccountId) -> bool:
        """Whether there was one."""
        return await self._pool.row_as(_site, "drop_lease_site", lease_id, account_id) is not None

    async def find(self, lease_id: str) -> LeaseSiteRow | None:
        return await self._pool.row_as(_site, "find_lease_site", lease_id)


def _site(*, lease_id: str, account_id: str, port: int) -> LeaseSiteRow:
    return LeaseSiteRow(lease_id, AccountId(account_id), port)
