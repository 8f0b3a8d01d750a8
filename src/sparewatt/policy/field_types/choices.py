"""Field types for one choice: flags, one word of a few, and preferences, where the most specific level wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sparewatt.core.errors import InvalidField, UnknownField
from sparewatt.policy.field_types.base import Items, PolicyField, single
from sparewatt.policy.field_types.numbers import read_number, scalar_text
from sparewatt.policy.field_types.sets import read_name, read_place, read_word

T = TypeVar("T")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WEIGHT_MAX = 1000.0

Weights = tuple[tuple[str, float], ...]


class FlagField(PolicyField[bool]):
    """Yes or no. One of the two is strict: once a level has it, no other level can undo it."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict

    def _read(self, _: str, items: Items, /, *, at: str) -> bool:
        word = single(items, at=at).lower()
        if word not in _BOOLEANS:
            raise InvalidField(f"'{at}' must be true or false, not {word[:40]!r}.", param=at)
        return _BOOLEANS[word]

    def from_json(self, value: object, *, at: str) -> bool:
        if not isinstance(value, bool):
            raise InvalidField(f"'{at}' must be true or false.", param=at)
        return value

    def meet(self, general: bool, specific: bool) -> bool:  # noqa: FBT001 - the values are booleans
        return self.strict if self.strict in {general, specific} else specific

    def widens(self, standing: bool, requested: bool) -> bool:  # noqa: FBT001 - likewise
        return standing is self.strict and requested is not self.strict

    def to_json(self, value: bool) -> bool:  # noqa: FBT001 - likewise
        return value


class _PreferenceField(PolicyField[T]):
    """The most specific level wins, and one carrier may set it only once."""

    def meet(self, general: T, specific: T) -> T:
        del general
        return specific

    def combine(self, first: T, second: T, *, at: str) -> T:
        del first, second
        raise InvalidField(f"'{at}' is given twice.", param=at)

    def to_json(self, value: T) -> Any:
        return value


class WordField(_PreferenceField[str]):
    """One word of a few."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def _read(self, _: str, items: Items, /, *, at: str) -> str:
        return read_word(single(items, at=at), at, self._words)


class StrictWordField(WordField):
    """One word of a few, of which one is a filter: once a level has it, no other level can undo it."""

    def __init__(self, strict: str, *others: str, required_fact: str | bool) -> None:
        """`required_fact`: what a node must have where the strict word holds."""
        super().__init__(strict, *others)
        self._strict, self._required_fact = strict, required_fact

    def meet(self, general: str, specific: str) -> str:
        return self._strict if general == self._strict else specific

    def combine(self, first: str, second: str, *, at: str) -> str:
        del at
        return self._strict if self._strict in {first, second} else second

    def widens(self, standing: str, requested: str) -> bool:
        return standing == self._strict and requested != self._strict

    def admits(self, value: str, fact: Any) -> bool:
        return value != self._strict or fact == self._required_fact


class RankedWordField(WordField):
    """One word of a few, from the strictest on: of two levels the stricter word holds, and a request cannot undo it."""

    def meet(self, general: str, specific: str) -> str:
        return min(general, specific, key=self._words.index)

    def combine(self, first: str, second: str, *, at: str) -> str:
        del at
        return self.meet(first, second)

    def widens(self, standing: str, requested: str) -> bool:
        return self._words.index(requested) > self._words.index(standing)


class PlaceField(_PreferenceField[str]):
    """One country or group to be near to."""

    def _read(self, _: str, items: Items, /, *, at: str) -> str:
        return read_place(single(items, at=at), at)


class PreferenceOrderField(_PreferenceField[tuple[str, ...]]):
    """Names to try first, in this order."""

    may_be_empty = True

    def _read(self, _: str, items: Items, /, *, at: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(read_name(item, at) for item in items))

    def to_json(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class WeightsField(_PreferenceField[Weights]):
    """How much each part of a cost counts; a part that is not named keeps its usual weight."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def _read(self, _: str, __: Items, /, *, at: str) -> Weights:
        raise InvalidField(f"'{at}' is given by part, e.g. {at}.{self.parts[0]}=2.", param=at)

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> Weights:
        self.check_operator(operator, at=at)
        if part not in self.parts:
            raise UnknownField(at, nearest=f"weights.{self.parts[0]}", param=at)
        return ((part, read_number(single(items, at=at), at=at, least=0.0, most=WEIGHT_MAX)),)

    def combine(self, first: Weights, second: Weights, *, at: str) -> Weights:
        if {part for part, _ in first} & {part for part, _ in second}:
            raise InvalidField(f"A part of '{at}' is given twice.", param=at)
        return tuple(sorted((*first, *second)))

    def from_json(self, value: object, *, at: str) -> Weights:
        if not isinstance(value, Mapping) or not value:
            raise InvalidField(f"'{at}' must be an object such as {{\"{self.parts[0]}\": 2}}.", param=at)
        return tuple(sorted(pair for part in value for pair in self._json_part(part, value[part], at=f"{at}.{part}")))

    def _json_part(self, part: str, value: object, *, at: str) -> Sequence[tuple[str, float]]:
        text = scalar_text(value, at=at)
        if text is None and part in self.parts:
            raise InvalidField(f"'{at}' must be a number.", param=at)
        return self.read_part(part, "=", (text or "",), at=at)

    def to_json(self, value: Weights) -> dict[str, float]:
        return dict(value)
