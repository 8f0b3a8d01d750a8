"""One method per question asked of Postgres. Rows come out as plain values; StoreUnavailable when it is away."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg
import msgspec

from sparewatt.core.ids import KeyId, MatchId, NodeId
from sparewatt.core.limits import KEYS_MAX, MATCHES_STORED_DAYS, NODES_MAX
from sparewatt.protocol.node import NodeSpecs
from sparewatt.store.chain import ChainStore
from sparewatt.store.pool import Pool
from sparewatt.store.queries import sql

TokenVerdict = Literal["accepted", "unknown", "used", "expired"]


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: KeyId
    name: str
    hash: bytes
    prefix: str
    scopes: tuple[str, ...]
    created_at: dt.datetime
    revoked_at: dt.datetime | None
    version: int


@dataclass(frozen=True, slots=True)
class StoredNode:
    id: NodeId
    specs: NodeSpecs | None
    last_seen_unix_s: float | None


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """An explanation in words, as JSON, and whose it is."""

    id: MatchId
    key_id: KeyId
    created_unix_s: float
    outcome: str
    explanation: bytes


class Database:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @classmethod
    async def connect(cls, dsn: str) -> Database:
        """Connect and bring the schema up to date. Raises StartupError with what to check."""
        return cls(await Pool.connect(dsn))

    async def close(self) -> None:
        await self._pool.close()

    @property
    def chain(self) -> ChainStore:
        return ChainStore(self._pool)

    # keys

    async def insert_key(
        self, *, key_id: KeyId, name: str, hashed: bytes, prefix: str, scopes: Sequence[str]
    ) -> KeyRow:
        row = await self._pool.row("insert_key", key_id, name, hashed, prefix, list(scopes))
        if row is None:
            raise RuntimeError("INSERT … RETURNING returned nothing")
        return _key_row(row)

    async def find_key(self, hashed: bytes) -> KeyRow | None:
        row = await self._pool.row("find_key_by_hash", hashed)
        return _key_row(row) if row else None

    async def list_keys(self, *, limit: int = 1000) -> list[KeyRow]:
        return [_key_row(row) for row in await self._pool.rows("list_keys", limit)]

    async def revoke_key(self, key_id: KeyId) -> KeyRow | None:
        row = await self._pool.row("revoke_key", key_id)
        return _key_row(row) if row else None

    async def keys_changed_since(self, version: int) -> list[KeyRow]:
        return [_key_row(row) for row in await self._pool.rows("keys_changed_since", version, KEYS_MAX)]

    # nodes

    async def list_nodes(self) -> list[StoredNode]:
        return [_stored_node(row) for row in await self._pool.rows("list_nodes", NODES_MAX)]

    async def node_is_registered(self, node_id: NodeId) -> bool:
        return bool(await self._pool.value("node_is_registered", node_id))

    async def save_nodes(self, nodes: Sequence[tuple[NodeId, NodeSpecs, float]]) -> None:
        ids = [node_id for node_id, _, _ in nodes]
        specs = [msgspec.json.encode(s).decode() for _, s, _ in nodes]
        await self._pool.do("save_nodes", ids, specs, [seen for _, _, seen in nodes])

    async def insert_join_token(self, hashed: bytes, *, created_by: KeyId, life_s: float) -> dt.datetime:
        expires_at: dt.datetime = await self._pool.value("insert_join_token", hashed, created_by, life_s)
        return expires_at

    async def exchange_join_token(self, hashed: bytes, node_id: NodeId) -> TokenVerdict:
        """Use the token and register the node, both or neither."""
        async with self._pool.transaction() as connection:
            row = await connection.fetchrow(sql("look_at_join_token"), hashed)
            if row is None:
                return "unknown"
            if row["used_at"] is not None:
                return "used"
            if row["expired"]:
                return "expired"
            await connection.execute(sql("register_node"), node_id)
            await connection.execute(sql("use_join_token"), hashed, node_id)
            return "accepted"

    async def forget_old_tokens(self) -> None:
        await self._pool.do("forget_old_tokens")

    # matches

    async def save_matches(self, matches: Sequence[StoredMatch]) -> None:
        rows = [(m.id, m.key_id, m.created_unix_s, m.outcome, m.explanation.decode()) for m in matches]
        await self._pool.do("insert_matches", *zip(*rows, strict=True))

    async def find_match(self, match_id: MatchId) -> tuple[KeyId, bytes] | None:
        """Whose it is, and its explanation as JSON."""
        row = await self._pool.row("find_match", match_id)
        return (KeyId(row["key_id"]), str(row["explanation"]).encode()) if row else None

    async def forget_old_matches(self) -> None:
        await self._pool.do("forget_old_matches", MATCHES_STORED_DAYS)


def _key_row(row: asyncpg.Record) -> KeyRow:
    values = dict(row.items())
    return KeyRow(**(values | {"scopes": tuple(values["scopes"])}))


def _stored_node(row: asyncpg.Record) -> StoredNode:
    seen = row["last_seen_at"]
    return StoredNode(NodeId(row["id"]), _read_specs(row["specs"]), seen.timestamp() if seen else None)


def _read_specs(text: str | None) -> NodeSpecs | None:
    """Specs of an older release may not fit today's shape; such a node is known again when it dials in."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=NodeSpecs)
    except msgspec.ValidationError:
        return None
