"""Money is an integer of nano-USD (1e-9 $), never a float. Prices are nano-USD per million tokens or per hour."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, DecimalException, Inexact, InvalidOperation, Overflow
from typing import NewType, TypeVar

from sparewatt.core.errors import InvalidAmount

Nano = NewType("Nano", int)
"""An amount in nano-USD."""

NANO_PER_USD = 1_000_000_000
MAX_NANO = 10**18  # a billion dollars: more is a mistake, and this fits a bigint
_Name = TypeVar("_Name", bound=str)
_EXACT = Context(prec=40, traps=[InvalidOperation, Inexact, Overflow])  # an amount that would be rounded is refused


def parse_usd(text: str) -> Nano:
    """Read a dollar amount exactly: `"0.02"` is 20,000,000. Raises InvalidAmount."""
    try:
        nano = _EXACT.multiply(_EXACT.create_decimal(text.strip().removeprefix("$")), NANO_PER_USD)
    except Inexact:
        raise InvalidAmount(text, why="has too many digits") from None
    except DecimalException:
        raise InvalidAmount(text) from None
    if not nano.is_finite():
        raise InvalidAmount(text)
    if nano < 0:
        raise InvalidAmount(text, why="is less than nothing")
    if nano > MAX_NANO:
        raise InvalidAmount(text, why=f"is more than ${MAX_NANO // NANO_PER_USD:,}, the most that can be written here")
    if nano != nano.to_integral_value():
        raise InvalidAmount(text, why="has more than nine decimals")
    return Nano(int(nano))


def format_usd(nano: int) -> str:
    """The shortest exact dollar amount, without exponent and trailing zeros."""
    dollars, rest = divmod(abs(nano), NANO_PER_USD)
    text = f"{dollars}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(dollars)
    return f"-{text}" if nano < 0 else text


def per_mtok(hourly: int, tokens_per_s: float) -> Nano:
    """The price of a million tokens on a machine with this price per hour and this speed."""
    return Nano(round(hourly * 1_000_000 / (3_600 * tokens_per_s)))


def token_cost(*, prompt_tokens: int, completion_tokens: int, prompt_price: int, completion_price: int) -> Nano:
    """The cost of a job at prices per million tokens, rounded down, once."""
    return Nano((prompt_tokens * prompt_price + completion_tokens * completion_price) // 1_000_000)


def split_by_weight(total: int, weights: Mapping[_Name, int]) -> dict[_Name, int]:
    """Shares of a whole amount in proportion to weights, which sum to it exactly; nothing if no weight is above 0.

    Shares are rounded down, and the rest goes, one unit each, to the largest remainders (then by name). Whose weight
    alone grows never gets less: every other quota falls by then, so no more of the others can come before it.
    """
    whole = sum(weights.values())
    if whole <= 0 or total <= 0:
        return dict.fromkeys(weights, 0)
    parts = {name: divmod(weight * total, whole) for name, weight in weights.items()}
    rest = total - sum(share for share, _ in parts.values())
    favoured = set(sorted(parts, key=lambda name: (-parts[name][1], name))[:rest])
    return {name: share + (name in favoured) for name, (share, _) in parts.items()}
