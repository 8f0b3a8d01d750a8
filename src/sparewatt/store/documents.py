"""Documents that clients store beside responses, in Postgres: bytes of one API key each, sealed by the caller.

A folder is a kind of document, or the one that others belong to; within it they have an order.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB
from sparewatt.store.connection_pool import Store
from sparewatt.store.responses import STORED_S

DOCUMENTS_PER_KEY_MAX, DOCUMENTS_BYTES_PER_KEY_MAX = 20_000, 256 * MIB
"""As much as of stored responses; an item of a conversation is a document, so there may be more of them."""
_FIRST, _LAST = -1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class SealedDocument:
    id: str
    number: int
    """Its place in the folder."""
    sealed: bytes
    created_at: dt.datetime
    expires_at: dt.datetime


class DocumentStore(Store):
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
        """Ids and contents; `expires_at`: in a day if None. False, and nothing changes, if the key has no room."""
        ids, sealed = [one[0] for one in documents], [one[1] for one in documents]
        rows = await self._pool.rows(
            "insert_documents", key_id, folder, ids, sealed, expires_at, count_max, bytes_max, STORED_S
        )
        return len(rows) == len(documents)

    async def replace(self, document_id: str, sealed: bytes, *, key_id: KeyId, folder: str) -> bool:
        return await self._pool.value("replace_document", key_id, folder, document_id, sealed) is not None

    async def find(self, document_id: str, *, key_id: KeyId, folder: str) -> SealedDocument | None:
        return await self._pool.row_as(SealedDocument, "find_document", key_id, folder, document_id)

    async def page(
        self, *, key_id: KeyId, folder: str, order: Literal["asc", "desc"], limit: int, after: int | None = None
    ) -> list[SealedDocument]:
        """`after`: the number of the last document that the caller has."""
        if order == "asc":
            start = _FIRST if after is None else after
            return await self._pool.rows_as(SealedDocument, "documents_after", key_id, folder, start, limit)
        start = _LAST if after is None else after
        return await self._pool.rows_as(SealedDocument, "documents_before", key_id, folder, start, limit)

    async def delete(self, document_id: str, *, key_id: KeyId, folder: str) -> bool:
        return await self._pool.value("delete_document", key_id, folder, document_id) is not None

    async def delete_folder(self, *, key_id: KeyId, folder: str) -> None:
        await self._pool.execute("delete_folder", key_id, folder)

    async def forget_old(self) -> None:
        await self._pool.execute("forget_old_documents")
