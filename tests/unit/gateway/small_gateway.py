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

from sparewatt.accounts.account_service import AccountService
from sparewatt.accounts.custody import Custody
from sparewatt.accounts.keys import hash_secret
from sparewatt.accounts.passwords import Passwords
from sparewatt.accounts.principal import SCOPES
from sparewatt.cluster.peer_rpc import ALONE, PeerClient, ProcessSlot
from sparewatt.cluster.peers import Peers
from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId, new_id
from sparewatt.core.rng import seeded
from sparewatt.edge.server import listen, serving
from sparewatt.edge.settings import ClientTimeouts
from sparewatt.gateway.accounting import Accounting
from sparewatt.gateway.routes import endpoint_groups, inference_endpoints, make_app, refusals
from sparewatt.gateway.services import Services
from sparewatt.gateway.settings import GatewaySettings
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.link.gateway_end import NodeLink
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.store.accounts import AccountStore, Role
from sparewatt.store.connection_pool import ConnectionPool
from sparewatt.store.database import Database, KeyRow, KeyTerms, StoredMatch
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.nodes import NOW_S
from tests.unit.store.memory_documents import MemoryDocuments
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


class NoPeople(AccountStore):
    """Nobody signed up; what routes for keys and nodes ask of it."""

    def __init__(self) -> None:
        self.owners: list[AccountId] = []

    async def make_owner(self, account_id: AccountId) -> bool:
        self.owners.append(account_id)
        return True


class NoPool(ConnectionPool):
    """Whoever asks Postgres for something fails."""

    def __init__(self) -> None:
        """Nothing to connect to."""


class ListDatabase(Database):
    """Answers what the routes ask, from lists."""

    def __init__(self) -> None:
        super().__init__(NoPool())
        self.accounts = NoPeople()
        self.keys: list[KeyRow] = []
        self.saved: list[tuple[NodeId, NodeSpecs, float]] = []
        self.matches: dict[MatchId, StoredMatch] = {}
        self.on_save: Callable[[], None] = lambda: None
        self.forgotten: set[NodeId] = set()
        self.forgotten_after_s = 0.0
        self.responses = MemoryResponses()
        self.documents = MemoryDocuments()

    async def note_nodes_seen(self, node_ids: Sequence[NodeId]) -> None:
        self.forgotten.difference_update(node_ids)

    async def forget_unserved_nodes(self, *, after_s: float) -> None:
        self.forgotten_after_s = after_s

    async def forgotten_among(self, node_ids: Sequence[NodeId]) -> list[NodeId]:
        return [node_id for node_id in node_ids if node_id in self.forgotten]

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
        self,
        hashed: bytes,
        *,
        account_id: AccountId,
        created_by: KeyId | None,
        life_s: float,
        lease_order: str | None = None,
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


UNLIMITED = {
    "requests_per_min": 1_000_000,
    "tokens_per_min": 1_000_000_000,
    "address_requests_per_min": 1_000_000,
    "address_tokens_per_min": 1_000_000_000,
    "signups_per_address_hour": 5,
}


def make_services(
    table: NodeTable | None = None,
    *,
    slot: ProcessSlot = ALONE,
    database: ListDatabase | None = None,
    accounting: Accounting | None = None,
    links: dict[NodeId, NodeLink] | None = None,
    **settings: Any,
) -> Services:
    """With four keys, and every node of the table the lender's."""
    clock, rng = ManualClock(now_s=NOW_S), seeded(1)
    database = database or ListDatabase()
    client = PeerClient(slot)
    services = Services(
        settings=GatewaySettings(database_url="postgresql://nowhere", seed=1, **UNLIMITED | settings),
        database=database,
        table=NodeTable() if table is None else table,
        accounting=accounting,
        people=AccountService(database.accounts, passwords=CHEAP, custody=Custody(bytes(32), rng=rng), rng=rng),
        custody=Custody(bytes(32), rng=rng),
        secret=bytes(32),
        node_links={} if links is None else links,
        port=1,
        peer_client=client,
        peers=Peers(client, clock=clock, run=new_id("run", rng=rng, n_bytes=5)),
        clock=clock,
        rng=rng,
    )
    services.keys.put([key_row("user", USER, "inference"), key_row("other", OTHER, "inference")])
    services.keys.put([key_row("admin", ADMIN, *SCOPES, role="operator"), key_row("lender", LENDER, "node")])
    services.links.owners.update({row.id: AccountId("acc_lender") for row in services.table})
    return services


def app_of(services: Services) -> Application:
    return make_app(services, endpoint_groups(services))


class EdgeServer(TestServer):
    """aiohttp's test server, with our own front end on the socket."""

    def __init__(self, services: Services, app: Application, timeouts: ClientTimeouts | None = None) -> None:
        super().__init__(app)
        self._services = services
        self._timeouts = timeouts
        self._open = AsyncExitStack()

    async def start_server(self, loop: AbstractEventLoop | None = None, **_: Any) -> None:
        listener = listen("127.0.0.1", 0)
        self.registry = await self._open.enter_async_context(
            serving(
                self.app,
                listener,
                settings=self._services.settings.edge,
                inference=inference_endpoints(self._services),
                links=self._services.links,
                refusals=refusals(self._services),
                timeouts=self._timeouts,
            )
        )
        self.port = listener.getsockname()[1]
        self._root = URL(f"http://127.0.0.1:{self.port}")

    async def close(self) -> None:
        await self._open.aclose()


@asynccontextmanager
async def running(
    services: Services, app: Application | None = None, *, timeouts: ClientTimeouts | None = None
) -> AsyncIterator[Client]:
    async with TestClient(EdgeServer(services, app or app_of(services), timeouts)) as client:
        yield client


def bearer(secret: str = USER) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
