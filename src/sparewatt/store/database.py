"""The whole database: API keys, nodes, join tokens and matches here, every other subject in a store of its own.

Rows come out as plain values. Every method raises StoreUnavailable while Postgres is away.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import msgspec

from sparewatt.core.ids import AccountId, KeyId, MatchId, NodeId
from sparewatt.core.limits import KEYS_MAX, KEYS_PER_ACCOUNT_MAX, MATCHES_STORED_DAYS, NODES_MAX
from sparewatt.protocol.link.node_report import NodeSpecs
from sparewatt.store.accounts import AccountStore, Role
from sparewatt.store.chain import ChainStore
from sparewatt.store.chain_audit import ChainAuditStore
from sparewatt.store.chain_requests import ChainRequestStore
from sparewatt.store.chain_restarts import ChainRestartStore
from sparewatt.store.check_counts import CheckCountStore
from sparewatt.store.check_verdicts import CheckVerdictStore
from sparewatt.store.connection_pool import ConnectionPool, sql
from sparewatt.store.credit_holds import CreditHoldStore
from sparewatt.store.delivered_tokens import DeliveredTokenStore
from sparewatt.store.documents import DocumentStore
from sparewatt.store.eras import EraStore
from sparewatt.store.exits import ExitStore
from sparewatt.store.history import HistoryStore
from sparewatt.store.lease_acts import LeaseActStore
from sparewatt.store.lease_matches import LeaseMatchStore
from sparewatt.store.lease_orders import LeaseOrderStore
from sparewatt.store.lease_sites import LeaseSiteStore
from sparewatt.store.ledger import LedgerStore, to_columns
from sparewatt.store.market_events import MarketEventStore
from sparewatt.store.model_aliases import ModelAliasStore
from sparewatt.store.node_results import NodeResultStore
from sparewatt.store.node_tiers import NodeTierStore
from sparewatt.store.node_timings import NodeTimingStore
from sparewatt.store.payouts import REWARD_POOL_ID, PayoutStore
from sparewatt.store.pockets import PocketStore
from sparewatt.store.power import PowerStore
from sparewatt.store.providers import ProviderStore
from sparewatt.store.responses import ResponseStore
from sparewatt.store.statements import StatementStore
from sparewatt.store.uptime_credits import UptimeCreditStore

JoinTokenVerdict = Literal["accepted", "unknown", "used", "expired", "closed"]
BudgetPeriod = Literal["day", "week", "month"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTerms:
    """What the holder of a key may change about it, in the order of the SQL statements. None: no limit of its own."""

    name: str
    policy: str | None = None
    budget_nano: int | None = None
    budget_period: BudgetPeriod | None = None
    expires_at: dt.datetime | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow(KeyTerms):
    """A key, and of its account the role, the policy and when it was closed."""

    id: KeyId
    account_id: AccountId
    role: Role
    hash: bytes
    prefix: str
    scopes: tuple[str, ...]
    account_policy: str | None = None
    created_at: dt.datetime
    last_used_at: dt.datetime | None = None
    revoked_at: dt.datetime | None = None
    closed_at: dt.datetime | None = None
    version: int


@dataclass(frozen=True, slots=True)
class NodeOwner:
    account_id: AccountId
    closed: bool
    lease_order: str | None = None
    """The lease that it runs in, by its order."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    id: NodeId
    account_id: AccountId
    specs: NodeSpecs | None
    last_seen_unix_s: float | None
    has_served: bool
    """Whether it ever finished a job."""


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """An explanation as JSON, and the key of its job."""

    id: MatchId
    key_id: KeyId
    created_unix_s: float
    outcome: str
    explanation: bytes


class Database:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.accounts = AccountStore(pool)
        self.chain = ChainStore(pool)
        self.chain_audit = ChainAuditStore(pool)
        self.chain_requests = ChainRequestStore(pool)
        self.chain_restarts = ChainRestartStore(pool)
        self.check_counts = CheckCountStore(pool)
        self.check_verdicts = CheckVerdictStore(pool)
        self.history = HistoryStore(pool)
        self.market_events = MarketEventStore(pool)
        self.lease_acts = LeaseActStore(pool)
        self.lease_matches = LeaseMatchStore(pool)
        self.lease_orders = LeaseOrderStore(pool)
        self.ledger = LedgerStore(pool)
        self.eras = EraStore(pool, self.ledger)
        self.model_aliases = ModelAliasStore(pool)
        self.lease_sites = LeaseSiteStore(pool)
        self.uptime_credits = UptimeCreditStore(pool)
        self.node_results = NodeResultStore(pool)
        self.node_tiers = NodeTierStore(pool)
        self.node_timings = NodeTimingStore(pool)
        self.delivered_tokens = DeliveredTokenStore(pool)
        self.payouts = PayoutStore(pool, self.ledger)
        self.reward_payouts = PayoutStore(pool, self.ledger, pool_id=REWARD_POOL_ID)
        self.pockets = PocketStore(pool, self.ledger)
        self.credit_holds = CreditHoldStore(pool)
        self.exits = ExitStore(pool)
        self.power = PowerStore(pool)
        self.providers = ProviderStore(pool)
        self.responses = ResponseStore(pool)
        self.documents = DocumentStore(pool)
        self.statements = StatementStore(pool)

    @classmethod
    async def connect(cls, dsn: str, *, is_disk_low: Callable[[], bool] = lambda: False) -> Database:
        """Connect and bring the schema up to date. Raises StartupError with what to check.

        `is_disk_low`: whether a server on this machine has no room for its files.
        """
        return cls(await ConnectionPool.connect(dsn, is_disk_low=is_disk_low))

    async def ping(self) -> None:
        await self._pool.execute("ping")

    def take_disk_full(self) -> bool:
        """Whether Postgres has said since the last call that its disk is full."""
        return self._pool.take_disk_full()

    async def close(self) -> None:
        await self._pool.close()

    # keys

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
        """None if the account has as many keys as it may."""
        values = (key_id, account_id, hashed, prefix, list(scopes), *astuple(terms), KEYS_PER_ACCOUNT_MAX)
        return await self._find_key_by_id(await self._pool.value("insert_key", *values))

    async def find_key(self, hashed: bytes) -> KeyRow | None:
        return await self._pool.row_as(_key_row, "find_key_by_hash", hashed)

    async def list_keys(self, account_id: AccountId | None, *, limit: int = KEYS_PER_ACCOUNT_MAX) -> list[KeyRow]:
        """Of one account, or of all with None."""
        return await self._pool.rows_as(_key_row, "list_keys", account_id, limit)

    async def revoke_key(self, key_id: KeyId, *, account_id: AccountId | None) -> KeyRow | None:
        """With an account, only a key of that account."""
        return await self._find_key_by_id(await self._pool.value("revoke_key", key_id, account_id))

    async def change_key(
        self, key_id: KeyId, *, account_id: AccountId | None, change: Callable[[KeyRow], KeyTerms]
    ) -> KeyRow | None:
        """Read, change and write in one transaction. If `change` raises, the key stays as it was."""
        async with self._pool.transaction() as connection:
            if await connection.fetchval(sql("lock_key"), key_id, account_id) is None:
                return None
            row = await connection.fetchrow(sql("find_key"), key_id)
            if row is None:
                return None
            await connection.execute(sql("change_key"), key_id, *astuple(change(_key_row(**row))))
        return await self._find_key_by_id(key_id)

    async def keys_changed_since(self, version: int) -> list[KeyRow]:
        return await self._pool.rows_as(_key_row, "keys_changed_since", version, KEYS_MAX)

    async def note_keys_used(self, key_ids: Sequence[KeyId]) -> None:
        await self._pool.execute("note_keys_used", list(key_ids))

    async def _find_key_by_id(self, key_id: str | None) -> KeyRow | None:
        return None if key_id is None else await self._pool.row_as(_key_row, "find_key", key_id)

    # nodes

    async def list_nodes(self) -> list[StoredNode]:
        """Without those that are forgotten."""
        return await self._pool.rows_as(_stored_node, "list_nodes", NODES_MAX)

    async def find_node_owner(self, node_id: NodeId) -> NodeOwner | None:
        """None if the node is not registered."""
        return await self._pool.row_as(NodeOwner, "find_node_owner", node_id)

    async def move_nodes(self, node_ids: Sequence[NodeId], *, source: AccountId, target: AccountId) -> None:
        await self._pool.execute("move_nodes", list(node_ids), source, target)

    async def nodes_of_closed_accounts(self) -> list[NodeId]:
        return [NodeId(row["id"]) for row in await self._pool.rows("nodes_of_closed_accounts")]

    async def save_nodes(self, nodes: Sequence[tuple[NodeId, NodeSpecs, float]]) -> None:
        """With their specs, and when each was seen last (Unix seconds)."""
        rows = [(node_id, msgspec.json.encode(specs).decode(), seen_at) for node_id, specs, seen_at in nodes]
        await self._pool.execute("save_nodes", *to_columns(rows, width=3))

    async def note_nodes_seen(self, node_ids: Sequence[NodeId]) -> None:
        """They are connected right now."""
        await self._pool.execute("note_nodes_seen", list(node_ids))

    async def forget_unserved_nodes(self, *, after_s: float) -> None:
        """Nodes that never served and were not seen for so long. They stay registered: their keys may join again."""
        await self._pool.execute("forget_unserved_nodes", after_s)

    async def nodes_of_leases(self) -> list[tuple[NodeId, str]]:
        """That are known or were until lately, each with the order of its lease."""
        rows = await self._pool.rows("nodes_of_leases", NODES_MAX)
        return [(NodeId(row["id"]), str(row["lease_order"])) for row in rows]

    async def forget_nodes(self, node_ids: Sequence[NodeId]) -> None:
        """They stay registered, for the books."""
        await self._pool.execute("forget_nodes", list(node_ids))

    async def forgotten_among(self, node_ids: Sequence[NodeId]) -> list[NodeId]:
        return [NodeId(row["id"]) for row in await self._pool.rows("forgotten_among", list(node_ids))]

    async def insert_join_token(
        self,
        hashed: bytes,
        *,
        account_id: AccountId,
        created_by: KeyId | None,
        life_s: float,
        lease_order: str | None = None,
    ) -> dt.datetime:
        """`lease_order`: for a node in this lease only."""
        expires_at: dt.datetime = await self._pool.value(
            "insert_join_token", hashed, account_id, created_by, life_s, lease_order
        )
        return expires_at

    async def exchange_join_token(self, hashed: bytes, node_id: NodeId) -> JoinTokenVerdict:
        """Use the token up and register the node for its account, both or neither."""
        async with self._pool.transaction() as connection:
            row = await connection.fetchrow(sql("look_at_join_token"), hashed)
            if row is None:
                return "unknown"
            verdict: JoinTokenVerdict = row["verdict"]
            if verdict == "accepted":
                await connection.execute(sql("register_node"), node_id, row["account_id"], row["lease_order"])
                await connection.execute(sql("use_join_token"), hashed, node_id)
            return verdict

    async def forget_old_tokens(self) -> None:
        await self._pool.execute("forget_old_tokens")

    # matches

    async def save_matches(self, matches: Sequence[StoredMatch]) -> None:
        rows = [(m.id, m.key_id, m.created_unix_s, m.outcome, m.explanation.decode()) for m in matches]
        await self._pool.execute("insert_matches", *zip(*rows, strict=True))

    async def find_match(self, match_id: MatchId) -> tuple[KeyId, bytes] | None:
        """The key of its job, and its explanation as JSON."""
        row = await self._pool.row("find_match", match_id)
        return (KeyId(row["key_id"]), str(row["explanation"]).encode()) if row else None

    async def forget_old_matches(self) -> None:
        await self._pool.execute("forget_old_matches", MATCHES_STORED_DAYS)


def _key_row(*, scopes: Sequence[str], **columns: Any) -> KeyRow:
    return KeyRow(scopes=tuple(scopes), **columns)


def _stored_node(*, specs: str | None, last_seen_at: dt.datetime | None, **columns: Any) -> StoredNode:
    last_seen_unix_s = last_seen_at.timestamp() if last_seen_at else None
    return StoredNode(specs=_read_specs(specs), last_seen_unix_s=last_seen_unix_s, **columns)


def _read_specs(text: str | None) -> NodeSpecs | None:
    """None for specs of an older release that do not fit today's shape: the node reports new ones when it connects."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=NodeSpecs)
    except msgspec.ValidationError:
        return None
