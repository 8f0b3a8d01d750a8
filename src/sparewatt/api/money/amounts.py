"""Amounts of money in bodies and replies: dollars as text, nano-dollars as integers, both exact."""

from __future__ import annotations

import msgspec

from sparewatt.core.errors import InvalidField
from sparewatt.core.limits import REFERENCE_CHARS_MAX
from sparewatt.core.money import Nano, format_usd, parse_usd
from sparewatt.core.rng import Rng
from sparewatt.ledger.credits import checked_transfer_nano
from sparewatt.protocol.api.credits import AmountBody, UsdNumber, UsdNumberOrNull


def amount_of(body: AmountBody) -> Nano:
    """Raises InvalidField or InvalidAmount: not exactly one amount, another currency, zero, less, or too much."""
    if body.currency != "USD":
        raise InvalidField(f"{body.currency[:20]!r} is not known here. Amounts are in USD.", param="currency")
    if (body.usd is None) == (body.nano is None):
        raise InvalidField("Say how much, either as 'usd' or as 'nano'.", param="usd")
    return checked_transfer_nano(parse_usd(str(body.usd)) if body.nano is None else body.nano)


def reference_of(body: AmountBody, *, rng: Rng) -> str:
    """The client's idempotency key, or a new one. Raises InvalidField."""
    if body.id is None:
        return rng.randbytes(10).hex()
    if not (0 < len(body.id) <= REFERENCE_CHARS_MAX and body.id.isascii() and body.id.isprintable()):
        raise InvalidField(f"An id has 1 to {REFERENCE_CHARS_MAX} printable ASCII characters.", param="id")
    return body.id


def usd_number(nano: int) -> UsdNumber:
    return msgspec.Raw(format_usd(nano).encode())


def usd_number_or_null(nano: int | None) -> UsdNumberOrNull:
    return msgspec.Raw(b"null") if nano is None else usd_number(nano)
