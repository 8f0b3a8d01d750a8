"""Fields that are sets of words: of a fixed vocabulary, of places, or of names that anybody may choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.policy import gpus, regions
from sparewatt.policy.field_types.base import Items, PolicyField, wrong_operator
from sparewatt.policy.grammar import join_items
from sparewatt.policy.model import NameFilter

Words = frozenset[str]
_IN, _NOT_IN = frozenset({"=", "in"}), frozenset({"!=", "notin"})
_LISTED = "=, !=, in, notin"


def _read_all(items: Items, read: Callable[[str, str], str], *, at: str) -> Words:
    return frozenset(read(item, at) for item in items)


class _AllowedSetField(PolicyField[Words]):
    """A set of words of which a node must be one. Levels intersect."""

    def meet(self, general: Words, specific: Words) -> Words:
        return general & specific

    def widens(self, standing: Words, asked: Words) -> bool:
        return not asked <= standing

    def admits(self, value: Words, fact: Any) -> bool:
        return fact in value

    def is_possible(self, value: Words) -> bool:
        return bool(value)

    def nearest(self, value: Words, facts: Sequence[Any]) -> Words | None:
        """With the word that lets most nodes in."""
        known = Counter(fact for fact in facts if fact is not None)
        return value | {min(known, key=lambda word: (-known[word], word))} if known else None


class EnumField(_AllowedSetField):
    """Words of a fixed vocabulary. Where they have an order, `>=` and the like choose a run of them."""

    def __init__(self, *words: str, ordered: bool = False) -> None:
        self.words, self.ordered = words, ordered

    def read(self, operator: str, items: Items, *, at: str) -> Words:
        chosen = _read_all(items, self._word, at=at)
        if operator in _IN:
            return chosen
        if operator in _NOT_IN:
            return frozenset(self.words) - chosen
        if self.ordered and len(items) == 1:
            return self._run(operator, self.words.index(self._word(items[0], at)))
        raise wrong_operator(operator, at=at, known=f"{_LISTED}, <, <=, >, >= one word" if self.ordered else _LISTED)

    def _word(self, item: str, at: str) -> str:
        if item.lower() in self.words:
            return item.lower()
        raise InvalidField(f"'{at}' has no value {item[:60]!r}. It knows {', '.join(self.words)}.", param=at)

    def _run(self, operator: str, at: int) -> Words:
        start, end = {"<": (0, at), "<=": (0, at + 1), ">": (at + 1, None), ">=": (at, None)}[operator]
        return frozenset(self.words[start:end])

    def to_json(self, value: Words) -> str | list[str]:
        names = [word for word in self.words if word in value]
        is_run = self.ordered and len(names) > 1 and value == frozenset(self.words[-len(names) :])
        return f">={names[0]}" if is_run else names

    def conditions(self, name: str, value: Words) -> list[str]:
        written = self.to_json(value)
        return [f"{name}{written}" if isinstance(written, str) else f"{name}={join_items(written)}"]


class RegionField(_AllowedSetField):
    """Countries and groups, kept as all the places they cover."""

    def read(self, operator: str, items: Items, *, at: str) -> Words:
        covered = frozenset[str]().union(*(regions.COVERS[read_place(item, at)] for item in items))
        if operator in _IN:
            return covered
        if operator in _NOT_IN:
            return regions.outside(covered)
        raise wrong_operator(operator, at=at, known=_LISTED)

    def to_json(self, value: Words) -> str | list[str]:
        names = regions.shortest_names(value)
        return f"!={join_items(without)}" if (without := self._shorter_outside(value, names)) else names

    def _shorter_outside(self, value: Words, names: list[str]) -> list[str] | None:
        """The few places that are left out, where that says the same in fewer words."""
        without = regions.outside(value)
        shorter = regions.shortest_names(without)
        return shorter if shorter and len(shorter) < len(names) and regions.outside(without) == value else None

    def conditions(self, name: str, value: Words) -> list[str]:
        written = self.to_json(value)
        return [f"{name}{written}" if isinstance(written, str) else f"{name}={join_items(written)}"]


def read_place(item: str, at: str) -> str:
    code = regions.code_of(item)
    if code is None:
        groups = ", ".join(sorted(regions.GROUPS))
        raise InvalidField(f"'{at}': {item[:60]!r} is no ISO country code and none of {groups}.", param=at)
    return code


def read_name(item: str, at: str) -> str:
    """A name that somebody chose for a node, an account or an auditor; case does not matter."""
    name = item.strip().lower()
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise InvalidField(f"'{at}' must hold printable names of 1 to {NAME_CHARS_MAX} characters.", param=at)
    return name


class AllowedNamesField(_AllowedSetField):
    """Names of which a node must bear one: `only`, `attested_by`. A fact is the set of names it bears."""

    def read(self, operator: str, items: Items, *, at: str) -> Words:
        if operator not in _IN:
            raise wrong_operator(operator, at=at, known="= and in")
        return _read_all(items, read_name, at=at)

    def admits(self, value: Words, fact: Any) -> bool:
        return not value.isdisjoint(fact)

    def nearest(self, value: Words, facts: Sequence[Any]) -> Words | None:
        del value, facts
        return None  # which of a node's names to add is not ours to guess

    def to_json(self, value: Words) -> list[str]:
        return sorted(value)


class DeniedNamesField(PolicyField[Words]):
    """Names that a node must not bear: `ignore`. Levels add up."""

    may_be_empty = True

    def read(self, operator: str, items: Items, *, at: str) -> Words:
        if operator not in _IN:
            raise wrong_operator(operator, at=at, known="= and in")
        return _read_all(items, read_name, at=at)

    def meet(self, general: Words, specific: Words) -> Words:
        return general | specific

    def admits(self, value: Words, fact: Any) -> bool:
        return value.isdisjoint(fact)

    def to_json(self, value: Words) -> list[str]:
        return sorted(value)


class RequiredWordsField(DeniedNamesField):
    """Words of a fixed vocabulary that a node must all have: `compliance`. Levels add up."""

    def __init__(self, *words: str) -> None:
        self._vocabulary = EnumField(*words)

    def read(self, operator: str, items: Items, *, at: str) -> Words:
        if operator not in _IN:
            raise wrong_operator(operator, at=at, known="= and in")
        return self._vocabulary.read(operator, items, at=at)

    def admits(self, value: Words, fact: Any) -> bool:
        return value.issubset(fact)


class GpuNamesField(PolicyField[NameFilter]):
    """Names of cards, allowed or denied. There is no list of all cards, so both are kept."""

    def read(self, operator: str, items: Items, *, at: str) -> NameFilter:
        names = _read_all(items, read_gpu, at=at)
        if operator in _IN:
            return NameFilter(allowed=names)
        if operator in _NOT_IN:
            return NameFilter(denied=names)
        raise wrong_operator(operator, at=at, known=_LISTED)

    def meet(self, general: NameFilter, specific: NameFilter) -> NameFilter:
        denied = general.denied | specific.denied
        lists = [names.allowed for names in (general, specific) if names.allowed is not None]
        if not lists:
            return NameFilter(denied=denied)
        return NameFilter(allowed=frozenset.intersection(*lists) - denied)

    def widens(self, standing: NameFilter, asked: NameFilter) -> bool:
        return asked.allowed is not None and not all(standing.admit(name) for name in asked.allowed)

    def admits(self, value: NameFilter, fact: Any) -> bool:
        return fact is not None and value.admit(fact)

    def is_possible(self, value: NameFilter) -> bool:
        return value.allowed is None or bool(value.allowed)

    def nearest(self, value: NameFilter, facts: Sequence[Any]) -> NameFilter | None:
        known = Counter(fact for fact in facts if fact is not None)
        if not known or value.allowed is None:
            return None
        return NameFilter(allowed=value.allowed | {min(known, key=lambda name: (-known[name], name))})

    def to_json(self, value: NameFilter) -> str | list[str]:
        return f"!={join_items(sorted(value.denied))}" if value.allowed is None else sorted(value.allowed)

    def conditions(self, name: str, value: NameFilter) -> list[str]:
        operator, names = ("!=", value.denied) if value.allowed is None else ("=", value.allowed)
        return [f"{name}{operator}{join_items(sorted(names))}"]


def read_gpu(item: str, at: str) -> str:
    if gpus.has_memory_size(item):
        raise InvalidField(f"'{at}': write the size of {item[:60]!r} as vram_gb, e.g. gpu=a100 vram_gb>=80.", param=at)
    return read_name(gpus.gpu_name(item[:NAME_CHARS_MAX]), at)


def normalized_names(names: Iterable[str | None]) -> Words:
    """The names of a node as a policy compares them."""
    return frozenset(name.strip().lower() for name in names if name)
