"""Names of things. Every id says by its prefix or shape what it names."""

from __future__ import annotations

from typing import NewType

from sparewatt.core.rng import Rng

NodeId = NewType("NodeId", str)
"""A node's secp256k1 address, lower case: `0x` and 40 hex digits."""

KeyId = NewType("KeyId", str)
"""Names an API key without being one: `key_…`."""

AccountId = NewType("AccountId", str)
"""Whose a key, a node or an amount is: `acc_…`."""

NETWORK_ACCOUNT = AccountId("acc_network")
"""The account of whoever runs the network, made with the schema."""

MatchId = NewType("MatchId", str)
"""One decision of the matcher and what came of it: `match_…`."""

RequestId = NewType("RequestId", str)
"""One HTTP request at a gateway: `req_…`."""

ModelId = NewType("ModelId", str)
"""A model as clients name it; may contain slashes."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u to misread


_PAIRS = tuple(low + high for high in _ALPHABET for low in _ALPHABET)
"""Ten bits at a time."""


def new_id(prefix: str, *, rng: Rng, n_bytes: int = 10) -> str:
    """A fresh id of `n_bytes` of chance, e.g. `match_5k0w…` (16 characters for 10 bytes)."""
    number = int.from_bytes(rng.randbytes(n_bytes), "big")
    pairs = _PAIRS
    if n_bytes == 10:  # by the thousand every second, hence without a loop
        return (
            f"{prefix}_{pairs[number & 1023]}{pairs[number >> 10 & 1023]}{pairs[number >> 20 & 1023]}"
            f"{pairs[number >> 30 & 1023]}{pairs[number >> 40 & 1023]}{pairs[number >> 50 & 1023]}"
            f"{pairs[number >> 60 & 1023]}{pairs[number >> 70]}"
        )
    n_chars = -(-n_bytes * 8 // 5)
    text = "".join([pairs[(number >> at) & 1023] for at in range(0, 5 * n_chars, 10)])
    return f"{prefix}_{text[:n_chars]}"
