"""What an operator may call a model, and that it holds as soon as it is stored."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparewatt.core.errors import InvalidField, NotFound, StorageFull
from sparewatt.inference.fleet.alias_service import AliasService, checked_target
from sparewatt.store.model_aliases import StoredAlias


class MemoryAliases:
    """Implements AliasStore."""

    def __init__(self, *, most: int = 10) -> None:
        self.rows: dict[str, StoredAlias] = {}
        self._most = most

    async def put(self, name: str, target: str) -> StoredAlias | None:
        if name not in self.rows and len(self.rows) >= self._most:
            return None
        self.rows[name] = StoredAlias(name, target, 1.0)
        return self.rows[name]

    async def drop(self, name: str) -> StoredAlias | None:
        return self.rows.pop(name, None)

    async def all(self) -> list[StoredAlias]:
        return list(self.rows.values())


class Applied:
    def __init__(self) -> None:
        self.aliases: Mapping[str, str] = {}

    def __call__(self, aliases: Mapping[str, str]) -> None:
        self.aliases = aliases


async def test_an_alias_is_stored_and_applied_and_removed() -> None:
    applied, store = Applied(), MemoryAliases()
    service = AliasService(store=store, apply=applied)
    stored = await service.put("our-llama", "meta-llama/Llama-3.1-8B-Instruct")
    assert stored.target == "llama-3.1-8b"
    assert applied.aliases == {"our-llama": "llama-3.1-8b"}
    assert await service.drop("our-llama") == stored
    assert applied.aliases == {}
    with pytest.raises(NotFound, match="models aliases"):
        await service.drop("our-llama")


async def test_what_another_gateway_stored_is_applied_at_the_next_reload() -> None:
    applied, store = Applied(), MemoryAliases()
    service = AliasService(store=store, apply=applied)
    await store.put("a", "b")
    await service.reload()
    assert applied.aliases == {"a": "b"}


async def test_there_may_be_only_so_many() -> None:
    service = AliasService(store=MemoryAliases(most=1), apply=Applied())
    await service.put("a", "b")
    await service.put("a", "c")
    with pytest.raises(StorageFull, match="Remove one first"):
        await service.put("d", "e")


def test_an_alias_of_an_alias_leads_to_the_model_at_once() -> None:
    assert checked_target("c", "a", {"a": "m"}) == "m"


@pytest.mark.parametrize(
    ("name", "target", "param"),
    [
        ("llama-3.1-8b", "m", "name"),  # a model's own name
        ("m", "m", "target"),
        ("m", "a", "target"),  # in a circle
        ("m", "n", "name"),  # a chain of two
        ("*", "n", "name"),  # everything
        ("a*b", "n", "name"),
        ("**", "n", "name"),
        ("claude-*", "b*", "target"),
    ],
)
def test_an_alias_leads_to_a_model_in_one_step(name: str, target: str, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        checked_target(name, target, {"a": "m"})
    assert caught.value.param == param


def test_an_alias_may_stand_for_all_names_with_one_beginning() -> None:
    assert checked_target("claude-*", "qwen3-32b", {}) == "qwen3-32b"
