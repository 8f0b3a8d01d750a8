"""Bounds for WebSockets of clients at one process: how many are open, and what they remember, by key and in all.

A response that is not kept can be continued on the socket that it came over, so the socket remembers the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparewatt.core.errors import RateLimited
from sparewatt.core.ids import KeyId
from sparewatt.core.limits import MIB
from sparewatt.protocol.responses.request import Json

SOCKETS_PER_KEY_MAX, SOCKETS_MAX = 64, 4_096
"""Agents that work for one key at the same time; an idle socket takes some 50 kB."""
REMEMBERED_PER_KEY_BYTES_MAX, REMEMBERED_BYTES_MAX = 32 * MIB, 256 * MIB
"""Conversations as JSON. The longest that a request may have is 20 MiB."""
_RETRY_S = 10.0


@dataclass(slots=True)
class SocketBudget:
    _sockets: Counter[KeyId] = field(default_factory=Counter)
    _bytes: Counter[KeyId] = field(default_factory=Counter)

    @contextmanager
    def opened(self, key_id: KeyId) -> Iterator[SocketMemory]:
        """Raises RateLimited if there are too many."""
        if self._sockets[key_id] >= SOCKETS_PER_KEY_MAX or self._sockets.total() >= SOCKETS_MAX:
            raise RateLimited(
                f"Too many WebSockets are open: {SOCKETS_PER_KEY_MAX} of one key, {SOCKETS_MAX:,} in all. Close one.",
                retry_after_s=_RETRY_S,
            )
        self._sockets[key_id] += 1
        memory = SocketMemory(self, key_id)
        try:
            yield memory
        finally:
            memory.forget()
            self._give_back(self._sockets, key_id, 1)

    def take(self, key_id: KeyId, n_bytes: int) -> bool:
        fits = self._bytes[key_id] + n_bytes <= REMEMBERED_PER_KEY_BYTES_MAX
        if not fits or self._bytes.total() + n_bytes > REMEMBERED_BYTES_MAX:
            return False
        self._bytes[key_id] += n_bytes
        return True

    def give_back(self, key_id: KeyId, n_bytes: int) -> None:
        self._give_back(self._bytes, key_id, n_bytes)

    @staticmethod
    def _give_back(counts: Counter[KeyId], key_id: KeyId, amount: int) -> None:
        counts[key_id] -= amount
        if not counts[key_id]:
            del counts[key_id]


class SocketMemory:
    """The last response of a socket that is kept nowhere else, with the conversation up to it."""

    def __init__(self, budget: SocketBudget, key_id: KeyId) -> None:
        self._budget = budget
        self._key_id = key_id
        self._response_id: str | None = None
        self._items: list[Json] = []
        self._n_bytes = 0

    def recall(self, response_id: str | None) -> list[Json] | None:
        """None if it is not this response that is remembered."""
        return self._items if response_id is not None and response_id == self._response_id else None

    def remember(self, response_id: str, items: list[Json], *, n_bytes: int) -> None:
        """In place of the one before. It is not remembered if there is no room."""
        self.forget()
        if self._budget.take(self._key_id, n_bytes):
            self._response_id, self._items, self._n_bytes = response_id, items, n_bytes

    def forget(self) -> None:
        if self._response_id is not None:
            self._budget.give_back(self._key_id, self._n_bytes)
        self._response_id, self._items, self._n_bytes = None, [], 0
