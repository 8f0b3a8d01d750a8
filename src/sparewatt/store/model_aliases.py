"""The operator's aliases of models."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from sparewatt.store.connection_pool import Store

ALIASES_MAX = 1_000
"""All are held in memory by every gateway; a network has some hundred models."""


@dataclass(frozen=True, slots=True)
class StoredAlias:
    name: str
    target: str
    created_unix_s: float


class ModelAliasStore(Store):
    async def put(self, name: str, target: str) -> StoredAlias | None:
        """None if there are as many as there may be."""
        return await self._pool.row_as(_alias, "put_model_alias", name, target, ALIASES_MAX)

    async def drop(self, name: str) -> StoredAlias | None:
        """None if there is none of this name."""
        return await self._pool.row_as(_alias, "drop_model_alias", name)

    async def all(self) -> list[StoredAlias]:
        return await self._pool.rows_as(_alias, "list_model_aliases", ALIASES_MAX)


def _alias(*, name: str, target: str, created_at: dt.datetime) -> StoredAlias:
    return StoredAlias(name, target, created_at.timestamp())
