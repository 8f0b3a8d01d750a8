"""Chance comes in by argument: secrets from the machine, test runs from a seed."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Rng(Protocol):
    """The two kinds of chance that product code uses."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randbytes(self, n: int, /) -> bytes:
        """`n` bytes that an outsider cannot guess (in production)."""
        ...


class SystemRng:
    """Unpredictable: fit for keys, tokens and nonces."""

    def __init__(self) -> None:
        self._random = secrets.SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def randbytes(self, n: int, /) -> bytes:
        return secrets.token_bytes(n)


def seeded(seed: int) -> Rng:
    """A repeatable source for tests and simulations; never for secrets."""
    return random.Random(seed)  # noqa: S311 (repeatable on purpose)
