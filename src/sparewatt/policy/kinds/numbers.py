"""Fields that are bounds on numbers: ranges, a floor, a ceiling, and prices in nano-USD."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sparewatt.core.errors import InvalidAmount, InvalidField, UnknownField
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.policy.kinds.base import Items, Kind, single, wrong_operator
from sparewatt.policy.model import Prices, Range
from sparewatt.policy.text import number_text

_PARTS = ("prompt", "completion")


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


def read_money(text: str, *, at: str) -> int:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise InvalidField(f"'{at}': {error.message}", param=at) from None


def scalar_text(value: object, *, at: str) -> str | None:
    """A JSON number in its shortest exact form, or None where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 10**30:
        raise InvalidField(f"'{at}' is too large.", param=at)
    return number_text(value)


class RangeKind(Kind[Range]):
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


class _Bound(Kind[float]):
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


class Floor(_Bound):
    operators = ("=", ">=")

    def meet(self, general: float, specific: float) -> float:
        return max(general, specific)

    def widens(self, standing: float, asked: float) -> bool:
        return asked < standing

    def admits(self, value: float, fact: Any) -> bool:
        return fact is not None and fact >= value

    def nearest(self, value: float, facts: Sequence[Any]) -> float | None:
        return max((fact for fact in facts if fact is not None and fact < value), default=None)


class Ceiling(_Bound):
    operators = ("=", "<=")

    def meet(self, general: float, specific: float) -> float:
        return min(general, specific)

    def widens(self, standing: float, asked: float) -> bool:
        return asked > standing

    def admits(self, value: float, fact: Any) -> bool:
        return fact is not None and fact <= value

    def nearest(self, value: float, facts: Sequence[Any]) -> float | None:
        return min((fact for fact in facts if fact is not None and fact > value), default=None)


class Wish(_Bound):
    """A number that is liked, not required: the most specific level wins."""

    operators = ("=",)

    def meet(self, general: float, specific: float) -> float:
        del general
        return specific


class Money(Kind[int]):
    """A ceiling in dollars, kept in nano-USD."""

    def read(self, operator: str, items: Items, *, at: str) -> int:
        if operator not in Ceiling.operators:
            raise wrong_operator(operator, at=at, known="= and <=")
        return read_money(single(items, at=at), at=at)

    def from_json(self, value: object, *, at: str) -> int:
        text = value if isinstance(value, str) else scalar_text(value, at=at)
        if text is None:
            raise InvalidField(f"'{at}' must be an amount in dollars.", param=at)
        return read_money(text, at=at)

    def meet(self, general: int, specific: int) -> int:
        return min(general, specific)

    def widens(self, standing: int, asked: int) -> bool:
        return asked > standing

    def admits(self, value: int, fact: Any) -> bool:
        return fact is not None and fact <= value

    def nearest(self, value: int, facts: Sequence[Any]) -> int | None:
        return min((fact for fact in facts if fact is not None and fact > value), default=None)

    def to_json(self, value: int) -> str:
        return format_usd(value)


class PriceCap(Kind[Prices]):
    """Ceilings per million tokens: one for both directions, or one each. A fact is (prompt, completion)."""

    _money = Money()

    def read(self, operator: str, items: Items, *, at: str) -> Prices:
        nano = self._money.read(operator, items, at=at)
        return Prices(nano, nano)

    def part(self, part: str, operator: str, items: Items, *, at: str) -> Prices:
        if part not in _PARTS:
            raise UnknownField(at, nearest="max_price.prompt", param=at)
        return Prices(**{part: self._money.read(operator, items, at=at)})

    def from_json(self, value: object, *, at: str) -> Prices:
        if not isinstance(value, Mapping):
            nano = self._money.from_json(value, at=at)
            return Prices(nano, nano)
        for part in value:
            if part not in _PARTS:
                raise UnknownField(f"{at}.{part}", nearest=f"{at}.prompt", param=f"{at}.{part}")
        given = {part: value[part] for part in _PARTS if value.get(part) is not None}
        if not given:
            raise InvalidField(f"'{at}' needs an amount for prompt or completion.", param=at)
        return Prices(**{part: self._money.from_json(given[part], at=f"{at}.{part}") for part in given})

    def meet(self, general: Prices, specific: Prices) -> Prices:
        return Prices(_least(general.prompt, specific.prompt), _least(general.completion, specific.completion))

    def widens(self, standing: Prices, asked: Prices) -> bool:
        """By direction: one that the request does not name stays as it is."""
        pairs = ((standing.prompt, asked.prompt), (standing.completion, asked.completion))
        return any(cap is not None and wish is not None and wish > cap for cap, wish in pairs)

    def admits(self, value: Prices, fact: Any) -> bool:
        prompt, completion = fact
        return _under(prompt, value.prompt) and _under(completion, value.completion)

    def nearest(self, value: Prices, facts: Sequence[Any]) -> Prices | None:
        """Raised as little as possible, counted over both directions."""
        raised = [_raised(value, fact) for fact in facts if None not in fact]
        return min(raised, key=lambda cap: ((cap.prompt or 0) + (cap.completion or 0), cap.prompt or 0), default=None)

    def to_json(self, value: Prices) -> str | dict[str, str]:
        if value.prompt is not None and value.prompt == value.completion:
            return format_usd(value.prompt)
        return {part: format_usd(nano) for part, nano in value.parts()}

    def conditions(self, name: str, value: Prices) -> list[str]:
        written = self.to_json(value)
        if isinstance(written, str):
            return [f"{name}={written}"]
        return [f"{name}.{part}={usd}" for part, usd in written.items()]


def _least(first: int | None, second: int | None) -> int | None:
    return min((nano for nano in (first, second) if nano is not None), default=None)


def _under(price: int | None, cap: int | None) -> bool:
    return cap is None or (price is not None and price <= cap)


def _raised(cap: Prices, fact: tuple[int, int]) -> Prices:
    """One ceiling for both directions stays one."""
    if cap.prompt is not None and cap.prompt == cap.completion:
        highest = max(cap.prompt, *fact)
        return Prices(highest, highest)
    return Prices(
        None if cap.prompt is None else max(cap.prompt, fact[0]),
        None if cap.completion is None else max(cap.completion, fact[1]),
    )
