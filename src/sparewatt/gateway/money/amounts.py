"""Amounts as people and programs send and read them: dollars as text, nano-dollars as integers, both exact."""

from __future__ import annotations

from typing import Any

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import REFERENCE_CHARS_MAX
from sparewatt.core.money import Nano, format_usd, parse_usd
from sparewatt.core.rng import Rng
from sparewatt.ledger.credits import checked_transfer


class AmountBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An amount, and a name for what is asked so that asking twice does it once."""

    usd: str | int | float | None = None
    """As text, or as a number: JSON's are read as they are written, up to fifteen digits."""
    nano: int | None = None
    currency: str = "USD"
    id: str | None = None


def amount_in(body: AmountBody) -> Nano:
    """Raises InvalidField or InvalidAmount: not exactly one amount, another currency, zero, less, or too much."""
    if body.currency != "USD":
        raise InvalidField(f"{body.currency[:20]!r} is not known here. Amounts are in USD.", param="currency")
    if (body.usd is None) == (body.nano is None):
        raise InvalidField("Say how much, either as 'usd' or as 'nano'.", param="usd")
    return checked_transfer(parse_usd(str(body.usd)) if body.nano is None else body.nano)


def reference_in(body: AmountBody, *, rng: Rng) -> str:
    """The client's own name for it, or a new one."""
    if body.id is None:
        return rng.randbytes(10).hex()
    if not (0 < len(body.id) <= REFERENCE_CHARS_MAX and body.id.isascii() and body.id.isprintable()):
        raise InvalidField(f"An id has 1 to {REFERENCE_CHARS_MAX} printable ASCII characters.", param="id")
    return body.id


def shown(name: str, nano: int) -> dict[str, Any]:
    """`{name}_usd` and `{name}_nano`."""
    return {f"{name}_usd": format_usd(nano), f"{name}_nano": nano}


def number(nano: int) -> msgspec.Raw:
    """Dollars as a JSON number, with every digit: what OpenRouter's clients read."""
    return msgspec.Raw(format_usd(nano).encode())
