"""A gateway without Postgres: the real routes and services over a database made of lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from sparewatt.accounts.keys import KeyRing, KeyService, hash_secret
from sparewatt.accounts.tokens import JoinTokens
from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.gateway.links import LinkDesk
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.admission.service import Admission
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import DispatchRules
from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.node import NodeSpecs
from sparewatt.store.database import Database, KeyRow, StoredMatch
from sparewatt.testing.clock import ManualClock
from tests.unit.inference.nodes import NOW_S

Client = TestClient[Request, Application]
USER, OTHER, ADMIN = "sk-sw-user", "sk-sw-other", "sk-sw-admin"
LENDER = "sk-sw-lender"
BORN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def key_row(name: str, secret: str, *scopes: str, version: int = 1, revoked: bool = False) -> KeyRow:
    return KeyRow(
        id=KeyId(f"key_{name}"),
        name=name,
        hash=hash_secret(secret),
        prefix=secret[:12],
        scopes=scopes,
        created_at=BORN,
        revoked_at=BORN if revoked else None,
        version=version,
    )


class ListDatabase(Database):
    """Answers what the routes ask, from lists."""

    def __init__(self) -> None:
        self.keys: list[KeyRow] = []
        self.saved: list[tuple[NodeId, NodeSpecs, float]] = []
        self.matches: dict[MatchId, StoredMatch] = {}
        self.on_save: Callable[[], None] = lambda: None

    async def insert_key(
        self, *, key_id: KeyId, name: str, hashed: bytes, prefix: str, scopes: Sequence[str]
    ) -> KeyRow:
        row = KeyRow(key_id, name, hashed, prefix, tuple(scopes), BORN, None, len(self.keys) + 1)
        self.keys.append(row)
        return row

    async def list_keys(self, *, limit: int = 1000) -> list[KeyRow]:
        return self.keys[:limit]

    async def revoke_key(self, key_id: KeyId) -> KeyRow | None:
        for at, row in enumerate(self.keys):
            if row.id == key_id:
                self.keys[at] = replace(row, revoked_at=BORN, version=row.version + 100)
                return self.keys[at]
        return None

    async def keys_changed_since(self, version: int) -> list[KeyRow]:
        return [row for row in self.keys if row.version > version]

    async def insert_join_token(self, hashed: bytes, *, created_by: KeyId, life_s: float) -> dt.datetime:
        return BORN + dt.timedelta(seconds=life_s)

    async def save_nodes(self, nodes: Sequence[tuple[NodeId, NodeSpecs, float]]) -> None:
        self.on_save()
        self.saved += nodes

    async def save_matches(self, matches: Sequence[StoredMatch]) -> None:
        self.on_save()
        self.matches |= {match.id: match for match in matches}

    async def find_match(self, match_id: MatchId) -> tuple[KeyId, bytes] | None:
        found = self.matches.get(match_id)
        return (found.key_id, found.explanation) if found else None


def make_services(table: NodeTable | None = None) -> Services:
    clock, rng, health = ManualClock(now_s=NOW_S), seeded(1), HealthRules()
    table, ring, database = table or NodeTable(), KeyRing(), ListDatabase()
    tokens = JoinTokens(database, rng=rng)
    desk = LinkDesk(table=table, tokens=tokens, hosts=frozenset({"127.0.0.1:1"}), health=health, clock=clock, rng=rng)
    ring.put([key_row("user", USER, "inference"), key_row("other", OTHER, "inference")])
    ring.put([key_row("admin", ADMIN, "inference", "node", "admin"), key_row("lender", LENDER, "node")])
    admission = Admission(table.room, clock=clock, rng=rng)
    table.room.on_room = admission.on_room
    return Services(
        settings=GatewaySettings(database_url="postgresql://nowhere"),
        database=database,
        ring=ring,
        keys=KeyService(database, ring, rng=rng),
        tokens=tokens,
        table=table,
        desk=desk,
        admission=admission,
        dispatcher=Dispatcher(table=table, links=desk.links, health=health, rules=DispatchRules(), seed=1, clock=clock),
        health=health,
        clock=clock,
        rng=rng,
        started_unix_s=1_700_000_000.0,
    )


@asynccontextmanager
async def running(services: Services, app: Application | None = None) -> AsyncIterator[Client]:
    async with TestClient(TestServer(app or make_app(services))) as client:
        yield client


def bearer(secret: str = USER) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
