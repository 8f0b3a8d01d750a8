"""Stored responses in Postgres: bytes of one API key each, sealed by the caller, for a day."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.store.connection_pool import Store

STORED_S = 24 * 3600.0
"""A promise to users: no setting makes it longer."""
ANCESTORS_MAX = 1_000
"""Stored responses that one continues, one after another; the context of a model is full long before."""
ABANDONED_S = 60.0
"""After this long without a heartbeat of its gateway, an unfinished response is lost."""


@dataclass(frozen=True, slots=True)
class SealedResponse:
    id: str
    previous_id: str | None
    status: str
    input: bytes
    output: bytes | None
    """None until it is finished."""
    created_at: dt.datetime
    expires_at: dt.datetime
    abandoned: bool
    """It will never be finished: its gateway died."""


class ResponseStore(Store):
    async def insert(
        self,
        response_id: str,
        *,
        key_id: KeyId,
        previous_id: str | None,
        sealed: bytes,
        life_s: float = STORED_S,
        count_max: int = RESPONSES_STORED_PER_KEY_MAX,
        bytes_max: int = RESPONSES_STORED_BYTES_PER_KEY_MAX,
    ) -> dt.datetime | None:
        """Returns when it will be deleted; None, and nothing changes, if the key stores as much as it may."""
        values = (response_id, key_id, previous_id, sealed, life_s, count_max, bytes_max)
        expires_at: dt.datetime | None = await self._pool.value("insert_response", *values)
        return expires_at

    async def finish(self, response_id: str, *, status: str, sealed: bytes) -> bool:
        """False if it was deleted meanwhile."""
        return await self._pool.value("finish_response", response_id, status, sealed) is not None

    async def find(self, response_id: str, *, key_id: KeyId) -> SealedResponse | None:
        return await self._pool.row_as(SealedResponse, "find_response", response_id, key_id, ABANDONED_S)

    async def find_with_ancestors(self, response_id: str, *, key_id: KeyId) -> list[SealedResponse]:
        """With the responses that it continues, the newest first, as far as they are stored."""
        return await self._pool.rows_as(SealedResponse, "response_chain", response_id, key_id, ANCESTORS_MAX)

    async def delete(self, response_id: str, *, key_id: KeyId) -> bool:
        return await self._pool.value("delete_response", response_id, key_id) is not None

    async def request_cancel(self, response_id: str, *, key_id: KeyId) -> None:
        await self._pool.execute("ask_to_cancel_response", response_id, key_id)

    async def heartbeat(self, response_ids: Sequence[str]) -> list[str]:
        """Report these as running. Returns those of them that shall be cancelled."""
        rows = await self._pool.rows("tend_responses", list(response_ids))
        return [row["id"] for row in rows if row["cancel_asked"]]

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_responses")
