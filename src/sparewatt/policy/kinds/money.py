"""Fields that are ceilings in dollars, kept in integer nano-USD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparewatt.core.errors import InvalidAmount, InvalidField, UnknownField
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.policy.kinds.base import Items, Kind, single, wrong_operator
from sparewatt.policy.kinds.numbers import Ceiling, scalar_text
from sparewatt.policy.model import Prices

_PARTS = ("prompt", "completion")


def read_money(text: str, *, at: str) -> int:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise InvalidField(f"'{at}': {error.message}", param=at) from None


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
