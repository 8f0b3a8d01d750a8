"""Stored responses: sealed bytes of one key each, for a day. What is in them is not known here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import (
    RESPONSE_CHAIN_MAX,
    RESPONSES_STORED_BYTES_PER_KEY_MAX,
    RESPONSES_STORED_PER_KEY_MAX,
    RESPONSES_STORED_S,
)
from sparewatt.store.connection_pool import ConnectionPool

ABANDONED_S = 60.0
"""After this long without a sign of its gateway, an answer under way is lost."""


@dataclass(frozen=True, slots=True)
class SealedResponse:
    """`output` is there once it is over. `abandoned`: it will never be, since its gateway died."""

    id: str
    previous_id: str | None
    status: str
    input: bytes
    output: bytes | None
    created_at: dt.datetime
    expires_at: dt.datetime
    abandoned: bool


class ResponseStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def insert(
        self,
        response_id: str,
        *,
        key_id: KeyId,
        previous_id: str | None,
        sealed: bytes,
        life_s: float = RESPONSES_STORED_S,
        count_max: int = RESPONSES_STORED_PER_KEY_MAX,
        bytes_max: int = RESPONSES_STORED_BYTES_PER_KEY_MAX,
    ) -> dt.datetime | None:
        """When it will be gone; None, and nothing changes, if the key keeps as much as it may."""
        values = (response_id, key_id, previous_id, sealed, life_s, count_max, bytes_max)
        expires_at: dt.datetime | None = await self._pool.value("insert_response", *values)
        return expires_at

    async def finish(self, response_id: str, *, status: str, sealed: bytes) -> bool:
        """False if it is not there any more."""
        return await self._pool.value("finish_response", response_id, status, sealed) is not None

    async def find(self, response_id: str, *, key_id: KeyId) -> SealedResponse | None:
        row = await self._pool.row("find_response", response_id, key_id, ABANDONED_S)
        return _sealed(row) if row else None

    async def find_with_ancestors(self, response_id: str, *, key_id: KeyId) -> list[SealedResponse]:
        """With those that it goes on from, the newest first, as far as they are there."""
        rows = await self._pool.rows("response_chain", response_id, key_id, RESPONSE_CHAIN_MAX)
        return [_sealed(row) for row in rows]

    async def delete(self, response_id: str, *, key_id: KeyId) -> bool:
        return await self._pool.value("delete_response", response_id, key_id) is not None

    async def request_cancel(self, response_id: str, *, key_id: KeyId) -> None:
        await self._pool.execute("ask_to_cancel_response", response_id, key_id)

    async def heartbeat(self, response_ids: Sequence[str]) -> list[str]:
        """Say that these are under way here. Returns those that somebody wants to end."""
        rows = await self._pool.rows("tend_responses", list(response_ids))
        return [row["id"] for row in rows if row["cancel_asked"]]

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_responses")


def _sealed(row: asyncpg.Record) -> SealedResponse:
    return SealedResponse(**dict(row.items()))
