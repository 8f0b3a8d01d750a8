"""Public addresses of leases: opened and closed by their renter, and found by their label when a visitor comes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from sparewatt.core.clock import Clock
from sparewatt.core.errors import LeaseNotFound, UnprocessableContent
from sparewatt.core.ids import AccountId
from sparewatt.leasing.access.lease_access import RentedLeases
from sparewatt.protocol.contracts.lease_content import read_content
from sparewatt.store.lease_sites import LeaseSiteRow, LeaseSiteStore

CACHE_S = 2.0
"""A visitor's page asks many times; a site that was closed is gone after so long."""
CACHED_MAX = 4_096


@dataclass(slots=True, kw_only=True, eq=False)
class LeaseSites:
    leases: RentedLeases
    store: LeaseSiteStore
    url_of: Callable[[str], str | None]
    """The address of a label; None where the operator has no host names for sites."""
    clock: Clock
    _cached: OrderedDict[str, tuple[LeaseSiteRow | None, float]] = field(default_factory=OrderedDict, init=False)

    async def open(self, account: AccountId, wanted: str, port: int) -> tuple[LeaseSiteRow, str]:
        """With its address. Raises LeaseNotFound, InvalidField or UnprocessableContent."""
        row = await self.leases.find(account, wanted)
        url = self.url_of(row.lease_id)
        if url is None:
            raise UnprocessableContent(
                "This gateway has no host names for public sites of leases. 'sparewatt lease connect' works everywhere."
            )
        ports = read_content(row.content or "{}").ports
        if port not in ports:
            known = ", ".join(map(str, ports)) or "none"
            raise UnprocessableContent(f"The order does not list port {port}; its ports are: {known}.")
        site = await self.store.put(row.lease_id, account, port)
        if site is None:
            raise UnprocessableContent("Another lease has this id and a public address.")
        self._cached.pop(row.lease_id, None)
        return site, url

    async def close(self, account: AccountId, wanted: str) -> None:
        """Raises LeaseNotFound if it has none."""
        row = await self.leases.find(account, wanted)
        self._cached.pop(row.lease_id, None)
        if not await self.store.drop(row.lease_id, account):
            raise LeaseNotFound("This lease has no public address.")

    async def find(self, label: str) -> LeaseSiteRow | None:
        now_s = self.clock.now_s()
        site, until_s = self._cached.get(label, (None, 0.0))
        if now_s < until_s:
            return site
        site = await self.store.find(label)
        self._cached[label] = (site, now_s + CACHE_S)
        self._cached.move_to_end(label)
        while len(self._cached) > CACHED_MAX:
            self._cached.popitem(last=False)
        return site
