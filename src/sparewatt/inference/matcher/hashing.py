"""Chance that anyone can recompute: a fraction from (seed, match, node), the same for one node and for an array."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
STEP, MIX_1, MIX_2 = np.uint64(_STEP), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3, SHIFT_4 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def hash_text(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def start_of(seed: int, match_hash: int) -> int:
    """What the seed and the match put into every node's fraction."""
    return (match_hash + (seed & _MASK) * _STEP) & _MASK


def fractions(seed: int, match_hash: int, node_hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) per node (splitmix64's mixing of the three)."""
    found: NDArray[np.float64] = mixed(node_hashes, np.uint64(start_of(seed, match_hash)))
    return found


def mixed(node_hash: Any, start: Any) -> Any:
    """For one node and for an array of them, as the formula is."""
    x = (node_hash ^ start) + STEP
    x = (x ^ (x >> SHIFT_1)) * MIX_1
    x = (x ^ (x >> SHIFT_2)) * MIX_2
    return ((x ^ (x >> SHIFT_3)) >> SHIFT_4) * (1.0 / (1 << 53))
