"""The operator's aliases of models: checked, stored, and applied to the names of all nodes' models.

Every gateway loads them again every few seconds, so an alias holds on the whole network soon after it was set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparewatt.core.errors import InvalidField, NotFound, StorageFull
from sparewatt.inference.fleet.model_catalog import ANY_REST
from sparewatt.policy.model_names.parser import identify, is_known_name
from sparewatt.store.model_aliases import ALIASES_MAX, StoredAlias

RELOAD_S = 5.0


class AliasStore(Protocol):
    """Implemented by `ModelAliasStore`."""

    async def put(self, name: str, target: str) -> StoredAlias | None: ...

    async def drop(self, name: str) -> StoredAlias | None: ...

    async def all(self) -> Sequence[StoredAlias]: ...


@dataclass(slots=True, kw_only=True)
class AliasService:
    store: AliasStore
    apply: Callable[[Mapping[str, str]], None]
    """Names all models by these aliases."""

    async def reload(self) -> Sequence[StoredAlias]:
        aliases = await self.store.all()
        self.apply({alias.name: alias.target for alias in aliases})
        return aliases

    async def put(self, name: str, target: str) -> StoredAlias:
        """Raises InvalidField or StorageFull."""
        existing = {alias.name: alias.target for alias in await self.store.all()}
        stored = await self.store.put(name, checked_target(name, target, existing))
        if stored is None:
            raise StorageFull(f"There are {ALIASES_MAX:,} aliases, as many as there may be. Remove one first.")
        await self.reload()
        return stored

    async def drop(self, name: str) -> StoredAlias:
        """Raises NotFound."""
        dropped = await self.store.drop(name)
        if dropped is None:
            raise NotFound(f"There is no alias {name[:100]!r}. 'sparewatt models aliases' lists them.")
        await self.reload()
        return dropped


def checked_target(name: str, target: str, existing: Mapping[str, str]) -> str:
    """The network name that the alias leads to, in one step. Raises InvalidField."""
    found = existing.get(target) or identify(target).name
    if ANY_REST in name[:-1] or name == ANY_REST:
        raise InvalidField(f"{ANY_REST!r} stands at the end of a name, behind its beginning: claude-*.", param="name")
    if ANY_REST in target:
        raise InvalidField("An alias leads to one model.", param="target")
    if is_known_name(name):
        raise InvalidField(f"{name!r} is the name of a model itself. Alias the other name to it.", param="name")
    if name == found:
        raise InvalidField("A name cannot be an alias of itself.", param="target")
    if name in existing.values():
        raise InvalidField(f"Other aliases lead to {name!r}. Remove those first.", param="name")
    return found
