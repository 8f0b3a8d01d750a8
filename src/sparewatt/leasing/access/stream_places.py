"""How many streams may be open at once at one process: of a lease, of an account, of all. Pure counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sparewatt.core.errors import RateLimited
from sparewatt.core.ids import AccountId

STREAMS_PER_LEASE = 64
"""A browser opens six connections to a page; a load test of one's own server a few dozen."""
STREAMS_PER_ACCOUNT = 256
STREAMS_PER_PROCESS = 1_024
"""Each may buffer a window in both directions: half a GiB at worst."""
RETRY_S = 5.0
_K = TypeVar("_K")


@dataclass(slots=True)
class StreamPlaces:
    _by_lease: Counter[str] = field(default_factory=Counter, init=False)
    _by_account: Counter[AccountId] = field(default_factory=Counter, init=False)

    @contextmanager
    def taken(self, account: AccountId, lease: str) -> Iterator[None]:
        """`lease`: what shares the places of one. Raises RateLimited."""
        if self._by_lease[lease] >= STREAMS_PER_LEASE:
            raise _full(f"one lease may have {STREAMS_PER_LEASE} logs, commands and connections open")
        if self._by_account[account] >= STREAMS_PER_ACCOUNT:
            raise _full(f"one account may have {STREAMS_PER_ACCOUNT} of them open")
        if self._by_account.total() >= STREAMS_PER_PROCESS:
            raise _full("this gateway carries as many as it can")
        self._by_lease[lease] += 1
        self._by_account[account] += 1
        try:
            yield
        finally:
            _leave(self._by_lease, lease)
            _leave(self._by_account, account)


def _full(why: str) -> RateLimited:
    return RateLimited(f"Too many streams: {why} at once. Close one, and try again.", retry_after_s=RETRY_S)


def _leave(counts: Counter[_K], key: _K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
