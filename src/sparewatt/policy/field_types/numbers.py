"""Fields that are bounds on numbers: ranges, a floor, a ceiling, and wishes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sparewatt.core.errors import InvalidField
from sparewatt.policy.field_types.base import Items, PolicyField, single, wrong_operator
from sparewatt.policy.grammar import number_text
from sparewatt.policy.model import Range


def read_number(text: str, *, at: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise InvalidField(
            f"'{at}' must be a number from {number_text(least)} to {number_text(most)}, not {text[:40]!r}.", param=at
        )
    return number + 0.0  # no negative zero


def scalar_text(value: object, *, at: str) -> str | None:
    """A JSON number in its shortest exact form, or None where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 10**30:
        raise InvalidField(f"'{at}' is too large.", param=at)
    return number_text(value)


class RangeField(PolicyField[Range]):
    """From, to, or between. `=` means at least, unless the numbers are counts."""

    def __init__(self, least: float, most: float, *, counts: bool = False) -> None:
        self.least, self.most, self.counts = least, most, counts

    def read(self, operator: str, items: Items, *, at: str) -> Range:
        number = read_number(single(items, at=at), at=at, least=self.least, most=self.most)
        if self.counts and number != int(number):
            raise InvalidField(f"'{at}' must be a whole number.", param=at)
        match operator:
            case ">=" | ">":
                return Range(low=number, low_open=operator == ">")
            case "<=" | "<":
                return Range(high=number, high_open=operator == "<")
            case "=":
                return Range(low=number, high=number) if self.counts else Range(low=number)
            case _:
                raise wrong_operator(operator, at=at, known="=, <, <=, >, >=")

    def from_json(self, value: object, *, at: str) -> Range:
        text = scalar_text(value, at=at)
        if text is not None:
            return self.read("=", (text,), at=at)
        if not isinstance(value, str):
            raise InvalidField(f"'{at}' must be a number or a string such as '>=1'.", param=at)
        return super().from_json(value, at=at)

    def meet(self, general: Range, specific: Range) -> Range:
        low, low_open = max((general.low, general.low_open), (specific.low, specific.low_open))
        high, closed = min((general.high, not general.high_open), (specific.high, not specific.high_open))
        return Range(low, high, low_open, not closed)

    def widens(self, standing: Range, asked: Range) -> bool:
        """By bound: one that the request does not name stays as it is."""
        lower = asked.low > -math.inf and (asked.low, asked.low_open) < (standing.low, standing.low_open)
        higher = asked.high < math.inf and (asked.high, not asked.high_open) > (standing.high, not standing.high_open)
        return lower or higher

    def admits(self, value: Range, fact: Any) -> bool:
        return fact is not None and value.holds(fact)

    def is_possible(self, value: Range) -> bool:
        return value.low < value.high or (value.low == value.high and not (value.low_open or value.high_open))

    def nearest(self, value: Range, facts: Sequence[Any]) -> Range | None:
        known = [fact for fact in facts if fact is not None]
        below = [fact for fact in known if fact <= value.low]
        above = [fact for fact in known if fact >= value.high]
        if below:
            return Range(max(below), value.high, False, value.high_open)
        return Range(value.low, min(above), value.low_open, False) if above else None

    def to_json(self, value: Range) -> str:
        return " ".join(self.conditions("", value))

    def conditions(self, name: str, value: Range) -> list[str]:
        found = []
        if value.low > -math.inf:
            found.append(f"{name}{'>' if value.low_open else '>='}{number_text(value.low)}")
        if value.high < math.inf:
            found.append(f"{name}{'<' if value.high_open else '<='}{number_text(value.high)}")
        return found


class _BoundField(PolicyField[float]):
    """One number, which is a floor or a ceiling by its name."""

    operators: tuple[str, ...] = ()

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def read(self, operator: str, items: Items, *, at: str) -> float:
        if operator not in self.operators:
            raise wrong_operator(operator, at=at, known=" and ".join(self.operators))
        return read_number(single(items, at=at), at=at, least=self.least, most=self.most)

    def from_json(self, value: object, *, at: str) -> float:
        text = scalar_text(value, at=at)
        if text is None:
            raise InvalidField(f"'{at}' must be a number.", param=at)
        return self.read("=", (text,), at=at)

    def to_json(self, value: float) -> float:
        return int(value) if value == int(value) else value

    def conditions(self, name: str, value: float) -> list[str]:
        return [f"{name}={number_text(value)}"]


class MinimumField(_BoundField):
    operators = ("=", ">=")

    def meet(self, general: float, specific: float) -> float:
        return max(general, specific)

    def widens(self, standing: float, asked: float) -> bool:
        return asked < standing

    def admits(self, value: float, fact: Any) -> bool:
        return fact is not None and fact >= value

    def nearest(self, value: float, facts: Sequence[Any]) -> float | None:
        return max((fact for fact in facts if fact is not None and fact < value), default=None)


class MaximumField(_BoundField):
    operators = ("=", "<=")

    def meet(self, general: float, specific: float) -> float:
        return min(general, specific)

    def widens(self, standing: float, asked: float) -> bool:
        return asked > standing

    def admits(self, value: float, fact: Any) -> bool:
        return fact is not None and fact <= value

    def nearest(self, value: float, facts: Sequence[Any]) -> float | None:
        return min((fact for fact in facts if fact is not None and fact > value), default=None)


class PreferredNumberField(_BoundField):
    """A number that is liked, not required: the most specific level wins."""

    operators = ("=",)

    def meet(self, general: float, specific: float) -> float:
        del general
        return specific
