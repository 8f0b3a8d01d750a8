"""Stored responses without Postgres; passes the same suite as the real store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import RESPONSES_STORED_BYTES_PER_KEY_MAX, RESPONSES_STORED_PER_KEY_MAX
from sparewatt.store.responses import (
    ANCESTORS_MAX,
    STORED_S,
    TRANSIENT_BYTES_PER_KEY_MAX,
    TRANSIENT_PER_KEY_MAX,
    TRANSIENT_S,
    TRIMMED_SHARE,
    ResponseStore,
    SealedResponse,
)


@dataclass
class Row:
    key_id: KeyId
    response: SealedResponse
    cancel_asked: bool = False

    @property
    def bytes(self) -> int:
        return len(self.response.input) + len(self.response.output or b"")


class MemoryResponses(ResponseStore):
    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

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
        now = dt.datetime.now(dt.UTC)
        own = [row for row in self._rows_of(key_id, is_stored=True) if row.response.expires_at > now]
        if len(own) >= count_max or sum(row.bytes for row in own) + len(sealed) > bytes_max:
            return None
        expires_at = now + dt.timedelta(seconds=life_s)
        sealed_row = SealedResponse(response_id, previous_id, "in_progress", sealed, None, now, expires_at, True, False)
        self.rows[response_id] = Row(key_id, sealed_row)
        return expires_at

    def _rows_of(self, key_id: KeyId, *, is_stored: bool) -> list[Row]:
        return [row for row in self.rows.values() if row.key_id == key_id and row.response.is_stored is is_stored]

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
        now = dt.datetime.now(dt.UTC)
        expires_at = now + dt.timedelta(seconds=life_s)
        status, output = outcome or ("in_progress", None)
        row = SealedResponse(response_id, previous_id, status, sealed, output, now, expires_at, False, False)
        self.rows[response_id] = Row(key_id, row)
        own = self._rows_of(key_id, is_stored=False)
        if len(own) > count_max or sum(row.bytes for row in own) > bytes_max:
            self._trim(own, int(count_max * TRIMMED_SHARE), int(bytes_max * TRIMMED_SHARE))
        return expires_at

    def _trim(self, own: list[Row], count_max: int, bytes_max: int) -> None:
        total = 0
        for place, row in enumerate(reversed(own), start=1):
            total += row.bytes
            if place > count_max or total > bytes_max:
                del self.rows[row.response.id]

    async def finish(self, response_id: str, *, status: str, sealed: bytes) -> bool:
        row = self.rows.get(response_id)
        if row is None or row.response.status != "in_progress":
            return False
        row.response = replace(row.response, status=status, output=sealed)
        return True

    async def find(self, response_id: str, *, key_id: KeyId) -> SealedResponse | None:
        row = self.rows.get(response_id)
        if row is None or row.key_id != key_id or row.response.expires_at <= dt.datetime.now(dt.UTC):
            return None
        return row.response

    async def find_all(self, response_ids: Sequence[str], *, key_id: KeyId) -> list[SealedResponse]:
        found = [await self.find(one, key_id=key_id) for one in set(response_ids)]
        return [one for one in found if one is not None]

    async def find_with_ancestors(self, response_id: str, *, key_id: KeyId) -> list[SealedResponse]:
        found: list[SealedResponse] = []
        wanted: str | None = response_id
        while wanted is not None and len(found) < ANCESTORS_MAX:
            one = await self.find(wanted, key_id=key_id)
            if one is None:
                break
            found.append(one)
            wanted = one.previous_id
        return found

    async def delete(self, response_id: str, *, key_id: KeyId) -> bool:
        row = self.rows.get(response_id)
        if row is None or row.key_id != key_id:
            return False
        del self.rows[response_id]
        return True

    async def request_cancel(self, response_id: str, *, key_id: KeyId) -> None:
        row = self.rows.get(response_id)
        if row is not None and row.key_id == key_id and row.response.status == "in_progress":
            row.cancel_asked = True

    async def heartbeat(self, response_ids: Sequence[str]) -> list[str]:
        return [one for one in response_ids if one in self.rows and self.rows[one].cancel_asked]

    async def forget_old(self) -> None:
        now = dt.datetime.now(dt.UTC)
        self.rows = {name: row for name, row in self.rows.items() if row.response.expires_at > now}
