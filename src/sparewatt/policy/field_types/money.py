"""Fields that are ceilings in dollars, kept in integer nano-USD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparewatt.core.errors import InvalidAmount, InvalidField, UnknownField
from sparewatt.core.money import format_usd, parse_usd
from sparewatt.policy.field_types.base import Items, PolicyField, single, wrong_operator
from sparewatt.policy.field_types.numbers import MaximumField, scalar_text
from sparewatt.policy.model import MaxPrice

_PARTS = ("prompt", "completion")


def read_money(text: str, *, at: str) -> int:
    try:
        return parse_usd(text)
    except InvalidAmount as error:
        raise InvalidField(f"'{at}': {error.message}", param=at) from None


class MoneyCapField(PolicyField[int]):
    """A ceiling in dollars, kept in nano-USD."""

    def read(self, operator: str, items: Items, *, at: str) -> int:
        if operator not in MaximumField.operators:
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


class PriceCapField(PolicyField[MaxPrice]):
    """Ceilings per million tokens: one for both directions, or one each. A fact is (prompt, completion)."""

    _money = MoneyCapField()

    def read(self, operator: str, items: Items, *, at: str) -> MaxPrice:
        nano = self._money.read(operator, items, at=at)
        return MaxPrice(nano, nano)

    def read_part(self, part: str, operator: str, items: Items, *, at: str) -> MaxPrice:
        if part not in _PARTS:
            raise UnknownField(at, nearest="max_price.prompt", param=at)
        return MaxPrice(**{part: self._money.read(operator, items, at=at)})

    def from_json(self, value: object, *, at: str) -> MaxPrice:
        if not isinstance(value, Mapping):
            nano = self._money.from_json(value, at=at)
            return MaxPrice(nano, nano)
        for part in value:
            if part not in _PARTS:
                raise UnknownField(f"{at}.{part}", nearest=f"{at}.prompt", param=f"{at}.{part}")
        given = {part: value[part] for part in _PARTS if value.get(part) is not None}
        if not given:
            raise InvalidField(f"'{at}' needs an amount for prompt or completion.", param=at)
        return MaxPrice(**{part: self._money.from_json(given[part], at=f"{at}.{part}") for part in given})

    def meet(self, general: MaxPrice, specific: MaxPrice) -> MaxPrice:
        return MaxPrice(_least(general.prompt, specific.prompt), _least(general.completion, specific.completion))

    def widens(self, standing: MaxPrice, asked: MaxPrice) -> bool:
        """By direction: one that the request does not name stays as it is."""
        pairs = ((standing.prompt, asked.prompt), (standing.completion, asked.completion))
        return any(cap is not None and wish is not None and wish > cap for cap, wish in pairs)

    def admits(self, value: MaxPrice, fact: Any) -> bool:
        prompt, completion = fact
        return _under(prompt, value.prompt) and _under(completion, value.completion)

    def nearest(self, value: MaxPrice, facts: Sequence[Any]) -> MaxPrice | None:
        """Raised as little as possible, counted over both directions."""
        raised = [_raised(value, fact) for fact in facts if None not in fact]
        return min(raised, key=lambda cap: ((cap.prompt or 0) + (cap.completion or 0), cap.prompt or 0), default=None)

    def to_json(self, value: MaxPrice) -> str | dict[str, str]:
        if value.prompt is not None and value.prompt == value.completion:
            return format_usd(value.prompt)
        return {part: format_usd(nano) for part, nano in value.parts()}

    def conditions(self, name: str, value: MaxPrice) -> list[str]:
        written = self.to_json(value)
        if isinstance(written, str):
            return [f"{name}={written}"]
        return [f"{name}.{part}={usd}" for part, usd in written.items()]


def _least(first: int | None, second: int | None) -> int | None:
    return min((nano for nano in (first, second) if nano is not None), default=None)


def _under(price: int | None, cap: int | None) -> bool:
    return cap is None or (price is not None and price <= cap)


def _raised(cap: MaxPrice, fact: tuple[int, int]) -> MaxPrice:
    """One ceiling for both directions stays one."""
    if cap.prompt is not None and cap.prompt == cap.completion:
        highest = max(cap.prompt, *fact)
        return MaxPrice(highest, highest)
    return MaxPrice(
        None if cap.prompt is None else max(cap.prompt, fact[0]),
        None if cap.completion is None else max(cap.completion, fact[1]),
    )
