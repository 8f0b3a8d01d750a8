"""Field types for sets of words: of a fixed vocabulary, of regions, or of names that people choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import NAME_CHARS_MAX
from sparewatt.policy import gpus, regions
from sparewatt.policy.field_types.base import Items, PolicyField, single
from sparewatt.policy.grammar import join_items
from sparewatt.policy.model import NameFilter

Words = frozenset[str]
_IN = ("=", "in")
_NOT_IN = ("!=", "notin")


class _AllowedSetField(PolicyField[Words]):
    """A set of words of which a node must have one. Levels intersect."""

    operators: tuple[str, ...] = (*_IN, *_NOT_IN)

    def meet(self, general: Words, specific: Words) -> Words:
        return general & specific

    def widens(self, standing: Words, requested: Words) -> bool:
        return not requested <= standing

    def admits(self, value: Words, fact: Any) -> bool:
        return fact in value

    def is_possible(self, value: Words) -> bool:
        return bool(value)

    def nearest(self, value: Words, facts: Sequence[Any]) -> Words | None:
        """Add the word that admits most nodes."""
        word = _most_common(facts)
        return None if word is None else value | {word}


def _most_common(facts: Sequence[Any]) -> str | None:
    known = Counter(fact for fact in facts if fact is not None)
    return min(known, key=lambda word: (-known[word], word), default=None)


class EnumField(_AllowedSetField):
    """Words of a fixed vocabulary. Where it is ordered, `>=` and the like select a run of words."""

    def __init__(self, *words: str, ordered: bool = False) -> None:
        self._words, self._ordered = words, ordered
        if ordered:
            self.operators = (*self.operators, "<", "<=", ">", ">=")

    def _read(self, operator: str, items: Items, /, *, at: str) -> Words:
        chosen = frozenset(read_word(item, at, self._words) for item in items)
        if operator in _IN:
            return chosen
        if operator in _NOT_IN:
            return frozenset(self._words) - chosen
        return self._run(operator, self._words.index(single(tuple(chosen), at=at)))

    def _run(self, operator: str, at: int) -> Words:
        start, end = {"<": (0, at), "<=": (0, at + 1), ">": (at + 1, None), ">=": (at, None)}[operator]
        return frozenset(self._words[start:end])

    def to_json(self, value: Words) -> str | list[str]:
        names = [word for word in self._words if word in value]
        is_run = self._ordered and len(names) > 1 and value == frozenset(self._words[-len(names) :])
        return f">={names[0]}" if is_run else names


class RegionField(_AllowedSetField):
    """Countries and groups; the value is the set of all places that they cover."""

    def _read(self, operator: str, items: Items, /, *, at: str) -> Words:
        covered = frozenset[str]().union(*(regions.COVERS[read_place(item, at)] for item in items))
        return covered if operator in _IN else regions.outside(covered)

    def to_json(self, value: Words) -> str | list[str]:
        names = regions.shortest_names(value)
        return f"!={join_items(without)}" if (without := self._shorter_outside(value, names)) else names

    def _shorter_outside(self, value: Words, names: list[str]) -> list[str] | None:
        """The places that are left out, if they take fewer words."""
        without = regions.outside(value)
        shorter = regions.shortest_names(without)
        return shorter if shorter and len(shorter) < len(names) and regions.outside(without) == value else None


class AllowedNamesField(_AllowedSetField):
    """Names of which a node must have one: `only`, `attested_by`. A fact is the set of the node's names."""

    operators = _IN

    def _read(self, _: str, items: Items, /, *, at: str) -> Words:
        return frozenset(read_name(item, at) for item in items)

    def admits(self, value: Words, fact: Any) -> bool:
        return not value.isdisjoint(fact)

    def nearest(self, value: Words, facts: Sequence[Any]) -> Words | None:
        del value, facts
        return None  # it would have to guess which of a node's names to add

    def to_json(self, value: Words) -> list[str]:
        return sorted(value)


class DeniedNamesField(PolicyField[Words]):
    """Names that a node must not have: `ignore`. Levels add up."""

    operators = _IN
    may_be_empty = True

    def _read(self, _: str, items: Items, /, *, at: str) -> Words:
        return frozenset(read_name(item, at) for item in items)

    def meet(self, general: Words, specific: Words) -> Words:
        return general | specific

    def admits(self, value: Words, fact: Any) -> bool:
        return value.isdisjoint(fact)

    def to_json(self, value: Words) -> list[str]:
        return sorted(value)


class RequiredWordsField(DeniedNamesField):
    """Words of a fixed vocabulary that a node must all have: `compliance`. Levels add up."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def _read(self, _: str, items: Items, /, *, at: str) -> Words:
        return frozenset(read_word(item, at, self._words) for item in items)

    def admits(self, value: Words, fact: Any) -> bool:
        return value.issubset(fact)


class GpuNamesField(PolicyField[NameFilter]):
    """Names of GPUs, allowed or denied. There is no list of all GPUs, so a value has both."""

    operators = (*_IN, *_NOT_IN)

    def _read(self, operator: str, items: Items, /, *, at: str) -> NameFilter:
        names = frozenset(_read_gpu(item, at) for item in items)
        return NameFilter(allowed=names) if operator in _IN else NameFilter(denied=names)

    def meet(self, general: NameFilter, specific: NameFilter) -> NameFilter:
        denied = general.denied | specific.denied
        lists = [names.allowed for names in (general, specific) if names.allowed is not None]
        if not lists:
            return NameFilter(denied=denied)
        return NameFilter(allowed=frozenset.intersection(*lists) - denied)

    def widens(self, standing: NameFilter, requested: NameFilter) -> bool:
        return requested.allowed is not None and not all(standing.admit(name) for name in requested.allowed)

    def admits(self, value: NameFilter, fact: Any) -> bool:
        return fact is not None and value.admit(fact)

    def is_possible(self, value: NameFilter) -> bool:
        return value.allowed is None or bool(value.allowed)

    def nearest(self, value: NameFilter, facts: Sequence[Any]) -> NameFilter | None:
        name = _most_common(facts)
        return None if name is None or value.allowed is None else NameFilter(allowed=value.allowed | {name})

    def to_json(self, value: NameFilter) -> str | list[str]:
        return f"!={join_items(sorted(value.denied))}" if value.allowed is None else sorted(value.allowed)


def read_word(item: str, at: str, vocabulary: Sequence[str]) -> str:
    if item.lower() in vocabulary:
        return item.lower()
    raise InvalidField(f"'{at}' has no value {item[:60]!r}. Its values are {', '.join(vocabulary)}.", param=at)


def read_place(item: str, at: str) -> str:
    code = regions.code_of(item)
    if code is None:
        groups = ", ".join(sorted(regions.GROUPS))
        raise InvalidField(f"'{at}': {item[:60]!r} is no ISO country code and none of {groups}.", param=at)
    return code


def read_name(item: str, at: str) -> str:
    """A name that a person chose for a node, an account or an auditor, in lower case."""
    name = item.strip().lower()
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise InvalidField(f"'{at}' must hold printable names of 1 to {NAME_CHARS_MAX} characters.", param=at)
    return name


def _read_gpu(item: str, at: str) -> str:
    if gpus.has_memory_size(item):
        raise InvalidField(f"'{at}': write the size of {item[:60]!r} as vram_gb, e.g. gpu=a100 vram_gb>=80.", param=at)
    return read_name(gpus.gpu_name(item[:NAME_CHARS_MAX]), at)


def normalized_names(names: Iterable[str | None]) -> Words:
    """A node's names as a policy compares them."""
    return frozenset(name.strip().lower() for name in names if name)
