"""/v1/leases/{lease}/secrets: sealed values on their way to the candidates' nodes. The gateway cannot read them."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.core.errors import ChainUnavailable
from sparewatt.core.limits import KIB
from sparewatt.edge.bodies import read_json
from sparewatt.leasing.changes.secret_intake import SecretIntake
from sparewatt.leasing.orders.order_service import LeaseOrderService
from sparewatt.protocol.api.lease_changes import LeaseSecrets, LeaseSecretsBody
from sparewatt.store.chain import ChainStore
from sparewatt.store.lease_orders import LeaseOrderRow

BODY_BYTES_MAX = 512 * KIB
"""160 KiB of hex digits for each of three candidates, and their names."""


@dataclass(slots=True, kw_only=True)
class LeaseSecretEndpoints:
    orders: LeaseOrderService
    secrets: SecretIntake
    chain: ChainStore

    @endpoint("GET /v1/leases/{lease}/secrets", access="lease")
    async def show_lease_secrets(self, request: web.Request, principal: Principal) -> LeaseSecrets:
        """Show which secrets a lease of yours has, which are missing, and to whom they are sealed."""
        return await self._reply(await self._find(request, principal))

    @endpoint("POST /v1/leases/{lease}/secrets", access="lease", body=LeaseSecretsBody)
    async def send_lease_secrets(self, request: web.Request, principal: Principal) -> LeaseSecrets:
        """Store secrets that you have sealed to the candidates' node keys. Repeated, they are replaced."""
        body = await read_json(request, LeaseSecretsBody, limit=BODY_BYTES_MAX)
        row = await self._find(request, principal)
        await self.secrets.save(row, body.sealed, attempt=body.attempt)
        return await self._reply(row)

    async def _reply(self, row: LeaseOrderRow) -> LeaseSecrets:
        attempt, candidates = self.secrets.candidates(row)
        index = await self.chain.index()
        if index is None:
            raise ChainUnavailable("The network's chain is not up yet. 'sparewatt chain status' tells more.")
        return LeaseSecrets(
            names=list(row.secrets),
            missing=await self.secrets.missing(row),
            attempt=attempt,
            candidates=list(candidates),
            chain_id=index.chain_id,
            deployment_order=index.contracts["deployment_order"].lower(),
        )

    async def _find(self, request: web.Request, principal: Principal) -> LeaseOrderRow:
        self.orders.market.view()  # raises NoChain
        return await self.orders.find(principal.account_id, request.match_info["lease"])
