"""Types of ids, and how new ones are made. An id shows by its prefix or shape what it names."""

from __future__ import annotations

from typing import NewType

from sparewatt.core.rng import Rng

NodeId = NewType("NodeId", str)
"""A node's secp256k1 address, lower case: `0x` and 40 hex digits."""

KeyId = NewType("KeyId", str)
"""The public id of an API key, not the key itself: `key_…`."""

AccountId = NewType("AccountId", str)
"""The owner of keys, nodes and credits: `acc_…`."""

NETWORK_ACCOUNT = AccountId("acc_network")
"""The account of the network's operator, created with the database schema."""

MatchId = NewType("MatchId", str)
"""A decision of the matcher, and the job that it was made for: `match_…`."""

ModelId = NewType("ModelId", str)
"""A model's name in requests; may contain slashes."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u to misread
_PAIRS = tuple(low + high for high in _ALPHABET for low in _ALPHABET)
"""Two characters for every value of ten bits."""


def new_id(prefix: str, *, rng: Rng, n_bytes: int = 10) -> str:
    """A new id from `n_bytes` random bytes, e.g. `match_5k0w…` (16 characters for 10 bytes)."""
    number = int.from_bytes(rng.randbytes(n_bytes), "big")
    pairs = _PAIRS
    if n_bytes == 10:  # thousands per second: the loop is unrolled
        return (
            f"{prefix}_{pairs[number & 1023]}{pairs[number >> 10 & 1023]}{pairs[number >> 20 & 1023]}"
            f"{pairs[number >> 30 & 1023]}{pairs[number >> 40 & 1023]}{pairs[number >> 50 & 1023]}"
            f"{pairs[number >> 60 & 1023]}{pairs[number >> 70]}"
        )
    n_chars = -(-n_bytes * 8 // 5)
    text = "".join([pairs[(number >> at) & 1023] for at in range(0, 5 * n_chars, 10)])
    return f"{prefix}_{text[:n_chars]}"
