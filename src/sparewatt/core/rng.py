"""Randomness comes in by argument: unpredictable in production, repeatable from a seed in tests and simulations."""

from __future__ import annotations

import random
from typing import Protocol


class Rng(Protocol):
    """The two kinds of randomness that product code uses."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randbytes(self, n: int, /) -> bytes:
        """`n` bytes that an outsider cannot guess (in production)."""
        ...


class SystemRng(random.SystemRandom):
    """The operating system's generator: fit for keys, tokens and nonces."""


def seeded(seed: int) -> Rng:
    """A repeatable source for tests and simulations; never for secrets."""
    return random.Random(seed)  # noqa: S311 (repeatable on purpose)
