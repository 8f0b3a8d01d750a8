"""JSON values sealed under one API key, each bound to a name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from sparewatt.accounts.sealer import Sealer
from sparewatt.core.limits import MIB
from sparewatt.core.rng import Rng

_T = TypeVar("_T")
_AT_ONCE_BYTES = MIB // 4
"""So much is sealed or opened on the event loop, which takes about a millisecond; more in a thread."""


class JsonSealer:
    def __init__(self, secret: str, *, purpose: bytes, rng: Rng) -> None:
        self._secret = secret
        self._purpose = purpose
        self._rng = rng

    @cached_property
    def sealer(self) -> Sealer:
        """Made on first use: some requests keep nothing, and deriving a key takes a tenth of a millisecond."""
        return Sealer(self._secret.encode(errors="surrogatepass"), purpose=self._purpose, rng=self._rng)

    async def seal(self, value: Any, *, bound_to: str) -> bytes:
        plain = msgspec.json.encode(value)
        return await _run(len(plain), lambda: self.sealer.seal(plain, bound_to=bound_to))

    async def open(self, sealed: bytes, *, bound_to: str) -> Any:
        """Raises ValueError if it was sealed under another name or key."""
        return msgspec.json.decode(await _run(len(sealed), lambda: self.sealer.open(sealed, bound_to=bound_to)))


async def _run(n_bytes: int, work: Callable[[], _T]) -> _T:
    """Here if it is short, else in a thread."""
    return work() if n_bytes <= _AT_ONCE_BYTES else await asyncio.to_thread(work)
