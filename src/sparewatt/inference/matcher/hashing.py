"""Chance that anyone can recompute: a fraction from (seed, match, node), the same for one node and for an array."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def hash_text(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def start_of(seed: int, match_hash: int) -> int:
    """What the seed and the match put into every node's fraction."""
    return (match_hash + (seed & _MASK) * _STEP) & _MASK


def fractions(seed: int, match_hash: int, node_hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) per node (splitmix64's mixing of the three)."""
    x = node_hashes ^ np.uint64(start_of(seed, match_hash))
    x = x + np.uint64(_STEP)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    x = x ^ (x >> np.uint64(31))
    found: NDArray[np.float64] = (x >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))
    return found
