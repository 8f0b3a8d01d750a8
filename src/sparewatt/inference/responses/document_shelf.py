"""JSON documents of one API key, in folders. Postgres has them sealed, and only the secret of that key opens them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sparewatt.core.errors import StorageFull
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB
from sparewatt.inference.responses.json_sealer import JsonSealer
from sparewatt.protocol.responses.request import Json
from sparewatt.store.documents import (
    DOCUMENTS_BYTES_PER_KEY_MAX,
    DOCUMENTS_PER_KEY_MAX,
    DocumentStore,
    SealedDocument,
)

SortOrder = Literal["asc", "desc"]


class Document(NamedTuple):
    value: Json
    number: int
    """Its place in the folder."""
    expires_at: dt.datetime


class DocumentShelf:
    def __init__(self, key_id: KeyId, sealer: JsonSealer, *, store: DocumentStore) -> None:
        self._key_id = key_id
        self._sealer = sealer
        self._store = store

    async def put(self, folder: str, values: Sequence[Json], *, expires_at: dt.datetime | None = None) -> None:
        """Each under its `id`, for a day if `expires_at` is None. Raises StorageFull, and then stores none."""
        rows = [(value["id"], await self._sealer.seal(value, bound_to=f"{folder}/{value['id']}")) for value in values]
        if rows and not await self._store.insert(rows, key_id=self._key_id, folder=folder, expires_at=expires_at):
            raise StorageFull(
                f"This key keeps as much as it may: {DOCUMENTS_PER_KEY_MAX:,} conversations, items and chat "
                f"completions, or {DOCUMENTS_BYTES_PER_KEY_MAX // MIB} MiB, within 24 h. Delete some.",
            )

    async def find(self, folder: str, document_id: str) -> Document | None:
        row = await self._store.find(document_id, key_id=self._key_id, folder=folder)
        return None if row is None else await self._open(folder, row)

    async def replace(self, folder: str, value: Json) -> bool:
        """False if it is not there any more."""
        sealed = await self._sealer.seal(value, bound_to=f"{folder}/{value['id']}")
        return await self._store.replace(value["id"], sealed, key_id=self._key_id, folder=folder)

    async def page(self, folder: str, *, order: SortOrder, limit: int, after: int | None = None) -> list[Document]:
        rows = await self._store.page(key_id=self._key_id, folder=folder, order=order, limit=limit, after=after)
        return [await self._open(folder, row) for row in rows]

    async def delete(self, folder: str, document_id: str) -> bool:
        return await self._store.delete(document_id, key_id=self._key_id, folder=folder)

    async def delete_folder(self, folder: str) -> None:
        await self._store.delete_folder(key_id=self._key_id, folder=folder)

    async def _open(self, folder: str, row: SealedDocument) -> Document:
        value: Json = await self._sealer.open(row.sealed, bound_to=f"{folder}/{row.id}")
        return Document(value, row.number, row.expires_at)
