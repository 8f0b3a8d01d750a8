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


_POOL_BYTES = 4096


class SystemRng:
    """Unpredictable: fit for keys, tokens and nonces."""

    def __init__(self) -> None:
        self._random = secrets.SystemRandom()

    def random(self) -> float:
        return self._random.random()

    def randbytes(self, n: int, /) -> bytes:
        return secrets.token_bytes(n)


class PooledRng(SystemRng):
    """The same, asked of the machine some hundred at a time: for names, of which every request takes two.

    For one thread, and for a process that does not fork.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pool = b""
        self._at = 0

    def randbytes(self, n: int, /) -> bytes:
        at = self._at
        end = self._at = at + n
        if end > len(self._pool):
            self._pool = secrets.token_bytes(max(n, _POOL_BYTES))
            at, self._at = 0, n
            end = n
        return self._pool[at:end]


def seeded(seed: int) -> Rng:
    """A repeatable source for tests and simulations; never for secrets."""
    return random.Random(seed)  # noqa: S311 (repeatable on purpose)
