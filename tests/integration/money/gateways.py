"""A gateway in this process over a real Postgres, and somebody of every kind with a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from sparewatt.accounts.principal import SCOPES
from sparewatt.core.ids import NETWORK_ACCOUNT, AccountId
from sparewatt.core.rng import seeded
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.services import Services, assemble
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.store.database import Database, KeyTerms
from sparewatt.testing.clocks import ManualClock
from tests.integration.money.samples import ANN, BEN, OLE, make_people

SECRETS = {
    "operator": (NETWORK_ACCOUNT, SCOPES),
    "ann": (ANN, ("inference", "admin")),
    "ben": (BEN, ("inference", "node", "admin")),
    "ole": (OLE, ("node",)),
}
"""Ann pays, Ben and Ole own nodes."""


@dataclass(slots=True)
class Gateway:
    services: Services
    client: TestClient[Request, Application]

    async def get(self, path: str, *, who: str | None = "ann") -> ClientResponse:
        return await self.client.get(path, headers=bearer(who))

    async def post(self, path: str, body: object, *, who: str | None = "ann") -> ClientResponse:
        return await self.client.post(path, json=body, headers=bearer(who))

    async def told(self, path: str, *, who: str | None = "ann") -> Any:
        reply = await self.get(path, who=who)
        assert reply.status == 200, await reply.text()
        return await reply.json()


def bearer(who: str | None) -> Mapping[str, str]:
    return {} if who is None else {"authorization": f"Bearer sk-sw-{who}"}


@asynccontextmanager
async def running_gateway(dsn: str, data: Path, clock: ManualClock, **settings: Any) -> AsyncIterator[Gateway]:
    database = await Database.connect(dsn)
    chosen = GatewaySettings(database_url=dsn, data=data, **({"development": True} | settings))
    await make_people(database)
    services = await assemble(chosen, database, port=1, clock=clock, rng=seeded(1))
    try:
        for who, (account, scopes) in SECRETS.items():
            await make_key(services, account, scopes, secret=f"sk-sw-{who}")
        async with TestClient(TestServer(make_app(services))) as client:
            yield Gateway(services, client)
    finally:
        if services.accounting is not None:
            await services.accounting.close()
        await database.close()


async def make_key(
    services: Services, account: AccountId, scopes: tuple[str, ...], *, secret: str, **terms: Any
) -> None:
    await services.key_service.create(account, terms=KeyTerms(name="test", **terms), scopes=scopes, secret=secret)
