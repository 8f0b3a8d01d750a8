"""Fields that are one choice: flags, words with a strict one among them, and preferences, where the last word wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sparewatt.core.errors import InvalidField, UnknownField
from sparewatt.policy.field_types.base import Items, PolicyField, single, wrong_operator
from sparewatt.policy.field_types.numbers import read_number, scalar_text
from sparewatt.policy.field_types.sets import EnumField, read_name, read_place
from sparewatt.policy.grammar import number_text

T = TypeVar("T")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
WEIGHT_MAX = 1000.0

Weights = tuple[tuple[str, float], ...]


def _only_equals(operator: str, *, at: str) -> None:
    if operator != "=":
        raise wrong_operator(operator, at=at, known="=")


class _PreferenceField(PolicyField[T]):
    """The most specific level wins, and one carrier may say it only once."""

    def meet(self, general: T, specific: T) -> T:
        del general
        return specific

    def combine(self, first: T, second: T, *, at: str) -> T:
        del first, second
        raise InvalidField(f"'{at}' is given twice.", param=at)


class FlagField(PolicyField[bool]):
    """Yes or no. One of the two is strict: once a level says it, no other can take it back."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict

    def read(self, operator: str, items: Items, *, at: str) -> bool:
        _only_equals(operator, at=at)
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

    def widens(self, standing: bool, asked: bool) -> bool:  # noqa: FBT001 - likewise
        return standing is self.strict and asked is not self.strict

    def to_json(self, value: bool) -> bool:  # noqa: FBT001 - likewise
        return value

    def conditions(self, name: str, value: bool) -> list[str]:  # noqa: FBT001 - likewise
        return [f"{name}={'true' if value else 'false'}"]


class SwitchField(FlagField):
    """Yes or no, and neither is stricter: the most specific level wins."""

    def __init__(self) -> None:
        super().__init__(strict=False)

    def meet(self, general: bool, specific: bool) -> bool:  # noqa: FBT001 - likewise
        del general
        return specific

    def widens(self, standing: bool, asked: bool) -> bool:  # noqa: FBT001 - likewise
        del standing, asked
        return False


class WordField(_PreferenceField[str]):
    """One word of a few, as a preference."""

    def __init__(self, *words: str) -> None:
        self._vocabulary = EnumField(*words)

    def read(self, operator: str, items: Items, *, at: str) -> str:
        _only_equals(operator, at=at)
        single(items, at=at)
        (word,) = self._vocabulary.read("=", items, at=at)
        return word

    def to_json(self, value: str) -> str:
        return value


class StrictWordField(WordField):
    """One word of a few, of which one is a demand: a level that makes it cannot be talked out of it."""

    def __init__(self, strict: str, *others: str, demanded_of: str | bool) -> None:
        super().__init__(strict, *others)
        self.strict, self._demanded = strict, demanded_of

    def meet(self, general: str, specific: str) -> str:
        return self.strict if general == self.strict else specific

    def combine(self, first: str, second: str, *, at: str) -> str:
        del at
        return self.strict if self.strict in {first, second} else second

    def widens(self, standing: str, asked: str) -> bool:
        return standing == self.strict and asked != self.strict

    def admits(self, value: str, fact: Any) -> bool:
        return value != self.strict or fact == self._demanded


class PlaceField(_PreferenceField[str]):
    """One country or group to be near to."""

    def read(self, operator: str, items: Items, *, at: str) -> str:
        _only_equals(operator, at=at)
        return read_place(single(items, at=at), at)

    def to_json(self, value: str) -> str:
        return value


class PreferenceOrderField(_PreferenceField[tuple[str, ...]]):
    """Names to try first, in this order."""

    may_be_empty = True

    def read(self, operator: str, items: Items, *, at: str) -> tuple[str, ...]:
        _only_equals(operator, at=at)
        return tuple(dict.fromkeys(read_name(item, at) for item in items))

    def to_json(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class WeightsField(_PreferenceField[Weights]):
    """How much each part of a score counts; what is not named keeps its usual weight."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts

    def read(self, operator: str, items: Items, *, at: str) -> Weights:
        del operator, items
        raise InvalidField(f"'{at}' is given by part, e.g. {at}.{self.parts[0]}=2.", param=at)

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> Weights:
        _only_equals(operator, at=at)
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

    def conditions(self, name: str, value: Weights) -> list[str]:
        return [f"{name}.{part}={number_text(weight)}" for part, weight in value]
