"""The interface of all types of policy fields. A field type holds no values, it works on them.

In every carrier a field's value is one or more conditions, each an operator and a few words. A JSON value becomes a
condition, once its type is checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Any, Generic, TypeVar

from sparewatt.core.errors import InvalidField, UnknownField
from sparewatt.policy.grammar import join_items, number_text, split_bare

POLICY_LIST_MAX = 256
"""Values of one field: every country of the world fits."""

V = TypeVar("V")
Items = tuple[str, ...]


class PolicyField(ABC, Generic[V]):
    """A type of field. `at` is the field's name in the carrier, for errors."""

    operators: tuple[str, ...] = ("=",)
    may_be_empty = False
    """Whether an empty list is the same as no field, rather than a filter that allows nothing."""

    def read(self, operator: str, items: Items, *, at: str) -> V:
        """The value of a condition. Raises InvalidField."""
        self.check_operator(operator, at=at)
        return self._read(operator, items, at=at)

    @abstractmethod
    def _read(self, operator: str, items: Items, /, *, at: str) -> V:
        """As `read`; the operator is one of `operators`."""

    @abstractmethod
    def meet(self, general: V, specific: V) -> V:
        """What both levels allow; of two preferences, the more specific one."""

    @abstractmethod
    def to_json(self, value: V) -> Any:
        """The inverse of `from_json`: a scalar, a list of words, an object of parts, or a string of conditions."""

    def conditions(self, name: str, value: V) -> list[str]:
        """The inverse of `read`, as text."""
        match self.to_json(value):
            case dict() as parts:
                return [f"{name}.{part}={_scalar_text(each)}" for part, each in parts.items()]
            case list() as words:
                return [f"{name}={join_items(words)}"]
            case str() as text if text[0] in "<>!":
                return [f"{name}{condition}" for condition in text.split(" ")]
            case scalar:
                return [f"{name}={_scalar_text(scalar)}"]

    def from_json(self, value: object, *, at: str) -> V:
        """A JSON value: a word, a list of words, or a string of conditions such as `>=a100`."""
        if isinstance(value, str):
            pairs = [(operator, bounded(items, at=at)) for operator, items in split_bare(value, at=at)]
            values = [self.read(operator, items, at=at) for operator, items in pairs]
            return reduce(lambda first, second: self.combine(first, second, at=at), values)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return self.read("=", bounded(tuple(value), at=at), at=at)
        raise InvalidField(f"'{at}' must be a string or a list of strings.", param=at)

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> V:
        """A condition on one part of the field, as in `max_price.prompt`."""
        del operator, items
        raise UnknownField(at, nearest=at.removesuffix(f".{part}"), param=at)

    def combine(self, first: V, second: V, *, at: str) -> V:
        """Two conditions of one carrier on the same field: both hold."""
        del at
        return self.meet(first, second)

    def widens(self, standing: V, requested: V) -> bool:
        """Whether a request allows something that a standing policy does not."""
        del standing, requested
        return False

    def admits(self, value: V, fact: Any) -> bool:
        """Whether a node with this fact may serve. An unknown fact satisfies no bound."""
        del value, fact
        return True

    def nearest(self, value: V, facts: Sequence[Any]) -> V | None:
        """The smallest relaxation that admits one of these facts, or None if the field would have to go."""
        del value, facts
        return None

    def is_possible(self, value: V) -> bool:
        """False if levels contradict one another, so that no node can satisfy the field."""
        del value
        return True

    def check_operator(self, operator: str, *, at: str) -> None:
        if operator not in self.operators:
            known = " ".join(self.operators)
            raise InvalidField(f"'{at}' cannot be compared with '{operator}'. Its operators are: {known}.", param=at)


def _scalar_text(value: str | float) -> str:
    match value:
        case str():
            return join_items([value])
        case bool():
            return "true" if value else "false"
        case _:
            return number_text(value)


def bounded(items: Items, *, at: str) -> Items:
    if len(items) > POLICY_LIST_MAX:
        raise InvalidField(f"'{at}' has {len(items)} values; it may have {POLICY_LIST_MAX}.", param=at)
    if not items:
        raise InvalidField(f"'{at}' is empty, which would allow nothing. Leave it out instead.", param=at)
    return items


def single(items: Items, *, at: str) -> str:
    if len(items) != 1:
        raise InvalidField(f"'{at}' takes one value, not {len(items)}.", param=at)
    return items[0]
