"""Stored documents without Postgres; passes the same suite as the real store."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sparewatt.core.ids import KeyId
from sparewatt.store.documents import (
    DOCUMENTS_BYTES_PER_KEY_MAX,
    DOCUMENTS_PER_KEY_MAX,
    DocumentStore,
    SealedDocument,
)
from sparewatt.store.responses import STORED_S

Place = tuple[KeyId, str, str]


class MemoryDocuments(DocumentStore):
    def __init__(self) -> None:
        self.rows: dict[Place, SealedDocument] = {}
        self._numbers = itertools.count()

    async def insert(
        self,
        documents: Sequence[tuple[str, bytes]],
        *,
        key_id: KeyId,
        folder: str,
        expires_at: dt.datetime | None = None,
        count_max: int = DOCUMENTS_PER_KEY_MAX,
        bytes_max: int = DOCUMENTS_BYTES_PER_KEY_MAX,
    ) -> bool:
        now = dt.datetime.now(dt.UTC)
        own = [row.sealed for place, row in self.rows.items() if place[0] == key_id and row.expires_at > now]
        added = [sealed for _, sealed in documents]
        if len(own) + len(added) > count_max or sum(map(len, own + added)) > bytes_max:
            return False
        expires_at = expires_at or now + dt.timedelta(seconds=STORED_S)
        for name, sealed in documents:
            known = self.rows.get((key_id, folder, name))
            row = SealedDocument(name, next(self._numbers), sealed, now, expires_at)
            self.rows[key_id, folder, name] = row if known is None else replace(known, sealed=sealed)
        return True

    async def replace(self, document_id: str, sealed: bytes, *, key_id: KeyId, folder: str) -> bool:
        row = await self.find(document_id, key_id=key_id, folder=folder)
        if row is not None:
            self.rows[key_id, folder, document_id] = replace(row, sealed=sealed)
        return row is not None

    async def find(self, document_id: str, *, key_id: KeyId, folder: str) -> SealedDocument | None:
        row = self.rows.get((key_id, folder, document_id))
        return row if row is not None and row.expires_at > dt.datetime.now(dt.UTC) else None

    async def page(
        self, *, key_id: KeyId, folder: str, order: Literal["asc", "desc"], limit: int, after: int | None = None
    ) -> list[SealedDocument]:
        now = dt.datetime.now(dt.UTC)
        rows = [row for place, row in self.rows.items() if place[:2] == (key_id, folder) and row.expires_at > now]
        rows.sort(key=lambda row: row.number, reverse=order == "desc")
        sign = 1 if order == "asc" else -1
        return [row for row in rows if after is None or sign * (row.number - after) > 0][:limit]

    async def delete(self, document_id: str, *, key_id: KeyId, folder: str) -> bool:
        found = await self.find(document_id, key_id=key_id, folder=folder)
        self.rows.pop((key_id, folder, document_id), None)
        return found is not None

    async def delete_folder(self, *, key_id: KeyId, folder: str) -> None:
        self.rows = {place: row for place, row in self.rows.items() if place[:2] != (key_id, folder)}

    async def forget_old(self) -> None:
        now = dt.datetime.now(dt.UTC)
        self.rows = {place: row for place, row in self.rows.items() if row.expires_at > now}
