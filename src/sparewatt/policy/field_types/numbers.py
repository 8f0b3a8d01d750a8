"""Field types for bounds on numbers and on amounts of money: ranges, minimums, maximums, prices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sparewatt.core.errors import InvalidAmount, InvalidField, UnknownField
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.policy.field_types.base import Items, PolicyField, single
from sparewatt.policy.grammar import number_text
from sparewatt.policy.model import MaxPrice, Range

N = TypeVar("N", int, float)
_PRICE_PARTS = ("prompt", "completion")


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
    """A JSON number in its shortest exact form, or None if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 10**30:
        raise InvalidField(f"'{at}' is too large.", param=at)
    return number_text(value)


class RangeField(PolicyField[Range]):
    """From, to, or between. `=` means at least, unless the numbers are counts."""

    operators = ("=", "<", "<=", ">", ">=")

    def __init__(self, least: float, most: float, *, counts: bool = False) -> None:
        self.least, self.most, self.counts = least, most, counts

    def _read(self, operator: str, items: Items, /, *, at: str) -> Range:
        number = read_number(single(items, at=at), at=at, least=self.least, most=self.most)
        if self.counts and number != int(number):
            raise InvalidField(f"'{at}' must be a whole number.", param=at)
        if operator in {"<=", "<"}:
            return Range(high=number, high_open=operator == "<")
        if operator == "=" and self.counts:
            return Range(low=number, high=number)
        return Range(low=number, low_open=operator == ">")

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

    def widens(self, standing: Range, requested: Range) -> bool:
        """By bound: one that the request does not name stays as it is."""
        low, high = (requested.low, requested.low_open), (requested.high, not requested.high_open)
        is_lower = requested.low > -math.inf and low < (standing.low, standing.low_open)
        return is_lower or (requested.high < math.inf and high > (standing.high, not standing.high_open))

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
        low = f"{'>' if value.low_open else '>='}{number_text(value.low)}" if value.low > -math.inf else ""
        high = f"{'<' if value.high_open else '<='}{number_text(value.high)}" if value.high < math.inf else ""
        return f"{low} {high}".strip()


class _NumberField(PolicyField[float]):
    """One number within a range that makes sense."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def _read(self, _: str, items: Items, /, *, at: str) -> float:
        return read_number(single(items, at=at), at=at, least=self.least, most=self.most)

    def from_json(self, value: object, *, at: str) -> float:
        text = scalar_text(value, at=at)
        if text is None:
            raise InvalidField(f"'{at}' must be a number.", param=at)
        return self.read("=", (text,), at=at)

    def to_json(self, value: float) -> float:
        return int(value) if value == int(value) else value


class MinimumField(_NumberField):
    """A lower bound. Of two levels the higher one holds."""

    operators = ("=", ">=")

    def meet(self, general: float, specific: float) -> float:
        return max(general, specific)

    def widens(self, standing: float, requested: float) -> bool:
        return requested < standing

    def admits(self, value: float, fact: Any) -> bool:
        return fact is not None and fact >= value

    def nearest(self, value: float, facts: Sequence[Any]) -> float | None:
        return max((fact for fact in facts if fact is not None and fact < value), default=None)


class _CapField(PolicyField[N]):
    """An upper bound. Of two levels the lower one holds."""

    operators = ("=", "<=")

    def meet(self, general: N, specific: N) -> N:
        return min(general, specific)

    def widens(self, standing: N, requested: N) -> bool:
        return requested > standing

    def admits(self, value: N, fact: Any) -> bool:
        return fact is not None and fact <= value

    def nearest(self, value: N, facts: Sequence[Any]) -> N | None:
        return min((fact for fact in facts if fact is not None and fact > value), default=None)


class MaximumField(_NumberField, _CapField[float]):
    pass


class MoneyCapField(_CapField[int]):
    """An upper bound in dollars; the value is in nano-USD."""

    def _read(self, _: str, items: Items, /, *, at: str) -> int:
        return _read_money(single(items, at=at), at=at)

    def from_json(self, value: object, *, at: str) -> int:
        text = value if isinstance(value, str) else scalar_text(value, at=at)
        if text is None:
            raise InvalidField(f"'{at}' must be an amount in dollars.", param=at)
        return _read_money(text, at=at)

    def to_json(self, value: int) -> str:
        return format_usd(value)


def _read_money(text: str, *, at: str) -> int:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise InvalidField(f"'{at}': {error.message}", param=at) from None


class PriceCapField(PolicyField[MaxPrice]):
    """Upper bounds per million tokens: one for both directions, or one each. A fact is (prompt, completion)."""

    operators = MoneyCapField.operators
    _money = MoneyCapField()

    def _read(self, operator: str, items: Items, /, *, at: str) -> MaxPrice:
        nano = self._money.read(operator, items, at=at)
        return MaxPrice(nano, nano)

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> MaxPrice:
        if part not in _PRICE_PARTS:
            raise UnknownField(at, nearest="max_price.prompt", param=at)
        return MaxPrice(**{part: self._money.read(operator, items, at=at)})

    def from_json(self, value: object, *, at: str) -> MaxPrice:
        if not isinstance(value, Mapping):
            nano = self._money.from_json(value, at=at)
            return MaxPrice(nano, nano)
        for part in value:
            if part not in _PRICE_PARTS:
                raise UnknownField(f"{at}.{part}", nearest=f"{at}.prompt", param=f"{at}.{part}")
        given = {part: value[part] for part in _PRICE_PARTS if value.get(part) is not None}
        if not given:
            raise InvalidField(f"'{at}' needs an amount for prompt or completion.", param=at)
        return MaxPrice(**{part: self._money.from_json(given[part], at=f"{at}.{part}") for part in given})

    def meet(self, general: MaxPrice, specific: MaxPrice) -> MaxPrice:
        return MaxPrice(_least(general.prompt, specific.prompt), _least(general.completion, specific.completion))

    def widens(self, standing: MaxPrice, requested: MaxPrice) -> bool:
        """By direction: one that the request does not name stays as it is."""
        pairs = ((standing.prompt, requested.prompt), (standing.completion, requested.completion))
        return any(cap is not None and wanted is not None and wanted > cap for cap, wanted in pairs)

    def admits(self, value: MaxPrice, fact: Any) -> bool:
        pairs = zip(fact, (value.prompt, value.completion), strict=True)
        return all(cap is None or (price is not None and price <= cap) for price, cap in pairs)

    def nearest(self, value: MaxPrice, facts: Sequence[Any]) -> MaxPrice | None:
        """Raised as little as possible, counted over both directions."""
        raised = [_raised(value, fact) for fact in facts if None not in fact]
        return min(raised, key=lambda cap: ((cap.prompt or 0) + (cap.completion or 0), cap.prompt or 0), default=None)

    def to_json(self, value: MaxPrice) -> str | dict[str, str]:
        if value.prompt is not None and value.prompt == value.completion:
            return format_usd(value.prompt)
        pairs = zip(_PRICE_PARTS, (value.prompt, value.completion), strict=True)
        return {part: format_usd(nano) for part, nano in pairs if nano is not None}


def _least(first: int | None, second: int | None) -> int | None:
    return min((nano for nano in (first, second) if nano is not None), default=None)


def _raised(cap: MaxPrice, fact: tuple[int, int]) -> MaxPrice:
    """One cap for both directions stays one."""
    if cap.prompt is not None and cap.prompt == cap.completion:
        highest = max(cap.prompt, *fact)
        return MaxPrice(highest, highest)
    return MaxPrice(
        None if cap.prompt is None else max(cap.prompt, fact[0]),
        None if cap.completion is None else max(cap.completion, fact[1]),
    )
