"""A gateway without Postgres: the real routes and services over a database made of lists."""

from __future__ import annotations

import datetime as dt
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from argon2 import PasswordHasher
from yarl import URL

from sparewatt.accounts.custody import Custody
from sparewatt.accounts.doors import Doors
from sparewatt.accounts.keys import KeyRing, KeyService, hash_secret
from sparewatt.accounts.limits import RateLimits
from sparewatt.accounts.passwords import Passwords
from sparewatt.accounts.people import People
from sparewatt.accounts.principal import SCOPES
from sparewatt.accounts.sessions import Sessions
from sparewatt.accounts.tokens import JoinTokens
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.rng import seeded
from sparewatt.gateway.addresses import listen
from sparewatt.gateway.front import Patience, listening
from sparewatt.gateway.links import LinkDesk
from sparewatt.gateway.money.desk import make_desk
from sparewatt.gateway.routes import make_app
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.gateway.siblings.place import ALONE, Place
from sparewatt.inference.admission.service import Admission
from sparewatt.inference.dispatch.dispatcher import Dispatcher
from sparewatt.inference.dispatch.model import DispatchRules
from sparewatt.inference.eligibility import Eligibility
from sparewatt.inference.matcher.model import HealthRules
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.inference.metering.prices import PriceCaps
from sparewatt.protocol.node import NodeSpecs
from sparewatt.store.database import Database, KeyRow, KeyTerms, StoredMatch
from sparewatt.store.people import PeopleStore, Role
from sparewatt.store.pool import Pool
from sparewatt.testing.clock import ManualClock
from tests.unit.inference.nodes import NOW_S
from tests.unit.store.memory_responses import MemoryResponses

Client = TestClient[Request, Application]
USER, OTHER, ADMIN = "sk-sw-user", "sk-sw-other", "sk-sw-admin"
LENDER = "sk-sw-lender"
BORN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CHEAP = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
"""Worthless as a hash, and quick."""


def key_row(
    name: str, secret: str, *scopes: str, version: int = 1, revoked: bool = False, role: Role = "user"
) -> KeyRow:
    """A key of an account that goes by the same name."""
    return KeyRow(
        id=KeyId(f"key_{name}"),
        account_id=AccountId(f"acc_{name}"),
        role=role,
        name=name,
        hash=hash_secret(secret),
        prefix=secret[:12],
        scopes=scopes,
        created_at=BORN,
        revoked_at=BORN if revoked else None,
        version=version,
    )


class NoPeople(PeopleStore):
    """Nobody signed up; what routes for keys and nodes ask of it."""

    def __init__(self) -> None:
        self.owners: list[AccountId] = []

    async def make_owner(self, account_id: AccountId) -> bool:
        self.owners.append(account_id)
        return True


class NoPool(Pool):
    """Whoever asks Postgres for something fails."""

    def __init__(self) -> None:
        """Nothing to connect to."""


class ListDatabase(Database):
    """Answers what the routes ask, from lists."""

    def __init__(self) -> None:
        super().__init__(NoPool())
        self.people = NoPeople()
        self.keys: list[KeyRow] = []
        self.saved: list[tuple[NodeId, NodeSpecs, float]] = []
        self.matches: dict[MatchId, StoredMatch] = {}
        self.on_save: Callable[[], None] = lambda: None
        self._responses = MemoryResponses()

    @property
    def responses(self) -> MemoryResponses:
        return self._responses

    async def insert_key(
        self,
        *,
        key_id: KeyId,
        account_id: AccountId,
        hashed: bytes,
        prefix: str,
        scopes: Sequence[str],
        terms: KeyTerms,
    ) -> KeyRow | None:
        row = KeyRow(
            id=key_id,
            account_id=account_id,
            role="user",
            hash=hashed,
            prefix=prefix,
            scopes=tuple(scopes),
            created_at=BORN,
            version=len(self.keys) + 1,
            **asdict(terms),
        )
        self.keys.append(row)
        return row

    async def list_keys(self, account_id: AccountId | None, *, limit: int = 1000) -> list[KeyRow]:
        return [row for row in self.keys if account_id in (None, row.account_id)][:limit]

    async def revoke_key(self, key_id: KeyId, *, account_id: AccountId | None) -> KeyRow | None:
        for at, row in enumerate(self.keys):
            if row.id == key_id and account_id in (None, row.account_id):
                self.keys[at] = replace(row, revoked_at=BORN, version=row.version + 100)
                return self.keys[at]
        return None

    async def keys_changed_since(self, version: int) -> list[KeyRow]:
        return [row for row in self.keys if row.version > version]

    async def insert_join_token(
        self, hashed: bytes, *, account_id: AccountId, created_by: KeyId | None, life_s: float
    ) -> dt.datetime:
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


def make_services(table: NodeTable | None = None, *, place: Place = ALONE) -> Services:
    clock, rng, health = ManualClock(now_s=NOW_S), seeded(1), HealthRules()
    table, ring, database = table or NodeTable(), KeyRing(), ListDatabase()
    tokens = JoinTokens(database, rng=rng)
    desk = LinkDesk(table=table, tokens=tokens, hosts=frozenset({"127.0.0.1:1"}), health=health, clock=clock, rng=rng)
    ring.put([key_row("user", USER, "inference"), key_row("other", OTHER, "inference")])
    ring.put([key_row("admin", ADMIN, *SCOPES, role="operator"), key_row("lender", LENDER, "node")])
    desk.owners = {row.id: AccountId("acc_lender") for row in table}
    admission = Admission(table.room, clock=clock, rng=rng)
    table.room.on_room = admission.on_room
    settings = GatewaySettings(database_url="postgresql://nowhere")
    return Services(
        settings=settings,
        database=database,
        ring=ring,
        keys=KeyService(database, ring, rng=rng),
        people=People(database.people, passwords=CHEAP, custody=Custody(bytes(32), rng=rng), rng=rng),
        sessions=Sessions(database.people, clock=clock, rng=rng),
        doors=Doors(signups_per_address_hour=5, clock=clock),
        tokens=tokens,
        table=table,
        desk=desk,
        admission=admission,
        dispatcher=Dispatcher(table=table, links=desk.links, health=health, rules=DispatchRules(), seed=1, clock=clock),
        money=make_desk(settings, database, clock=clock),
        health=health,
        clock=clock,
        rng=rng,
        prefix_secret=bytes(32),
        started_unix_s=1_700_000_000.0,
        root_url="http://127.0.0.1:1",
        origins=frozenset({"http://127.0.0.1:1"}),
        limits=RateLimits(
            requests_per_min=1_000_000,
            tokens_per_min=1_000_000_000,
            address_requests_per_min=1_000_000,
            address_tokens_per_min=1_000_000_000,
        ),
        prices=PriceCaps(table.median_price, clock=clock),
        eligibility=Eligibility(table, clock=clock),
        place=place,
    )


class FrontServer(TestServer):
    """aiohttp's test server, with our own front end on the socket."""

    def __init__(self, app: Application, patience: Patience | None = None) -> None:
        super().__init__(app)
        self._patience = patience
        self._open = AsyncExitStack()

    async def start_server(self, loop: AbstractEventLoop | None = None, **_: Any) -> None:
        listener = listen("127.0.0.1", 0)
        self.doorkeeper = await self._open.enter_async_context(listening(self.app, listener, patience=self._patience))
        self.port = listener.getsockname()[1]
        self._root = URL(f"http://127.0.0.1:{self.port}")

    async def close(self) -> None:
        await self._open.aclose()


@asynccontextmanager
async def running(
    services: Services, app: Application | None = None, *, patience: Patience | None = None
) -> AsyncIterator[Client]:
    async with TestClient(FrontServer(app or make_app(services), patience)) as client:
        yield client


def bearer(secret: str = USER) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
