"""/v1/leases/{lease}/site: a renter opens a port of a lease to everybody, and closes it."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.edge.bodies import read_json
from sparewatt.leasing.access.lease_sites import LeaseSites
from sparewatt.protocol.api.lease_access import LeaseSite, LeaseSiteBody


@dataclass(slots=True, kw_only=True)
class LeaseSiteEndpoints:
    sites: LeaseSites

    @endpoint("POST /v1/leases/{lease}/site", access="lease", body=LeaseSiteBody)
    async def open_lease_site(self, request: web.Request, principal: Principal) -> LeaseSite:
        """Give a port of your lease a public address. Everybody who knows it can visit it."""
        body = await read_json(request, LeaseSiteBody)
        site, url = await self.sites.open(principal.account_id, request.match_info["lease"], body.port)
        return LeaseSite(site.lease_id, site.port, url)

    @endpoint("DELETE /v1/leases/{lease}/site", access="lease")
    async def close_lease_site(self, request: web.Request, principal: Principal) -> LeaseSite:
        """Close the public address of your lease. Visits that are under way go on."""
        wanted = request.match_info["lease"]
        await self.sites.close(principal.account_id, wanted)
        return LeaseSite(wanted, None, None)
