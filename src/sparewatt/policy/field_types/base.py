"""What every field of a policy can do, whatever its sort. A kind holds no values; it is told them.

Values come as conditions: an operator and a few words. JSON comes the same way, once its types are checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from sparewatt.core.errors import InvalidField, UnknownField
from sparewatt.core.limits import POLICY_LIST_MAX
from sparewatt.policy.grammar import join_items, split_bare

V = TypeVar("V")
Items = tuple[str, ...]


class PolicyField(ABC, Generic[V]):
    """One sort of field. `at` is the field's name as the client wrote it, for errors."""

    may_be_empty = False
    """Whether an empty list says nothing, rather than allowing nothing."""

    @abstractmethod
    def read(self, operator: str, items: Items, *, at: str) -> V:
        """A condition of the text form. Raises InvalidField."""

    @abstractmethod
    def meet(self, general: V, specific: V) -> V:
        """What both levels allow; of two preferences, the more specific one."""

    @abstractmethod
    def to_json(self, value: V) -> Any:
        """As `from_json` reads it."""

    def conditions(self, name: str, value: V) -> list[str]:
        """The text form, as `read` reads it."""
        written = self.to_json(value)
        return [f"{name}={join_items(written if isinstance(written, list) else [str(written)])}"]

    def from_json(self, value: object, *, at: str) -> V:
        """A JSON value: a word, a list of words, or a string of conditions such as `>=a100`."""
        if isinstance(value, str):
            return self._from_string(value, at=at)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return self.read("=", bounded(tuple(value), at=at), at=at)
        raise InvalidField(f"'{at}' must be a string or a list of strings.", param=at)

    def _from_string(self, value: str, *, at: str) -> V:
        pairs = [(operator, bounded(items, at=at)) for operator, items in split_bare(value, at=at)]
        read = [self.read(operator, items, at=at) for operator, items in pairs]
        found = read[0]
        for other in read[1:]:
            found = self.combine(found, other, at=at)
        return found

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> V:
        """A condition on one part of the field, as in `max_price.prompt`."""
        del operator, items
        raise UnknownField(at, nearest=at.removesuffix(f".{part}"), param=at)

    def combine(self, first: V, second: V, *, at: str) -> V:
        """Two conditions of one carrier on the same field: both hold."""
        del at
        return self.meet(first, second)

    def widens(self, standing: V, asked: V) -> bool:
        """Whether a request asks for something that a standing policy does not allow."""
        del standing, asked
        return False

    def admits(self, value: V, fact: Any) -> bool:
        """Whether a node with this figure may be used. An unknown figure satisfies no bound."""
        del value, fact
        return True

    def nearest(self, value: V, facts: Sequence[Any]) -> V | None:
        """The smallest loosening that lets one of these figures in, or None if only dropping the field would."""
        del value, facts
        return None

    def is_possible(self, value: V) -> bool:
        """False once levels contradict one another, so that no node at all is left."""
        del value
        return True


def bounded(items: Items, *, at: str) -> Items:
    if len(items) > POLICY_LIST_MAX:
        raise InvalidField(f"'{at}' has {len(items)} values; at most {POLICY_LIST_MAX} are read.", param=at)
    if not items:
        raise InvalidField(f"'{at}' is empty, which would allow nothing. Leave it out instead.", param=at)
    return items


def wrong_operator(operator: str, *, at: str, known: str) -> InvalidField:
    return InvalidField(f"'{at}' cannot be compared with '{operator}'. It knows {known}.", param=at)


def single(items: Items, *, at: str) -> str:
    if len(items) != 1:
        raise InvalidField(f"'{at}' takes one value, not {len(items)}.", param=at)
    return items[0]
