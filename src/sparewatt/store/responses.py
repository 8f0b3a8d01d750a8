"""Responses in Postgres: bytes of one API key each, sealed by the caller.

Those that a client asked to store are there for a day. Those that it needs only to go on are there for an hour, in a
table of their own that no backup contains, and the oldest of a key make room for new ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB, RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.store.connection_pool import Store

STORED_S = 24 * 3600.0
"""A promise to users: no setting makes it longer."""
TRANSIENT_S = 3600.0
"""The same promise for what nobody asked to store."""
TRANSIENT_PER_KEY_MAX, TRANSIENT_BYTES_PER_KEY_MAX = 5_000, 64 * MIB
"""More than a turn a second. They are counted at each insert, which takes Postgres a millisecond at this number."""
TRIMMED_SHARE = 0.9
"""A key that has too many is cut to this share of what it may have, so that the next insert does not cut again."""
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
    is_stored: bool
    """Whether the client asked for it; else it is there for an hour."""
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

    async def insert_transient(
        self,
        response_id: str,
        *,
        key_id: KeyId,
        previous_id: str | None,
        sealed: bytes,
        outcome: tuple[str, bytes] | None = None,
        life_s: float = TRANSIENT_S,
        count_max: int = TRANSIENT_PER_KEY_MAX,
        bytes_max: int = TRANSIENT_BYTES_PER_KEY_MAX,
    ) -> dt.datetime:
        """Returns until when it is kept. `outcome`: status and sealed output of one that is over.

        If the key has too many, its oldest are deleted.
        """
        status, output = outcome or ("in_progress", None)
        values = (response_id, key_id, previous_id, status, sealed, output, life_s, count_max, bytes_max)
        (row,) = await self._pool.rows("insert_transient_response", *values)
        if row["is_full"]:
            limits = (int(count_max * TRIMMED_SHARE), int(bytes_max * TRIMMED_SHARE))
            await self._pool.execute("trim_transient_responses", key_id, *limits)
        expires_at: dt.datetime = row["expires_at"]
        return expires_at

    async def finish(self, response_id: str, *, status: str, sealed: bytes) -> bool:
        """False if it was deleted meanwhile."""
        return await self._pool.value("finish_response", response_id, status, sealed) is not None

    async def find(self, response_id: str, *, key_id: KeyId) -> SealedResponse | None:
        found = await self.find_all([response_id], key_id=key_id)
        return found[0] if found else None

    async def find_all(self, response_ids: Sequence[str], *, key_id: KeyId) -> list[SealedResponse]:
        """Those of them that are there, in any order."""
        values = (list(response_ids), key_id, ABANDONED_S)
        return await self._pool.rows_as(SealedResponse, "find_responses", *values)

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
