"""Which explanations outlive the ring: one in a hundred, and every failure. They wait here, bounded, to be stored.

The request path only appends to a queue; whoever stores them takes them out in the background.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from zlib import crc32

from sparewatt.core.limits import MATCHES_TO_STORE_MAX
from sparewatt.inference.dispatch.model import MatchRecord, Outcome

ONE_IN = 100
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


def is_worth_storing(record: MatchRecord) -> bool:
    """By the id and not by chance, so that every process would choose the same."""
    return record.outcome in _FAILURES or crc32(record.id.encode()) % ONE_IN == 0


class ExplanationQueue:
    def __init__(self) -> None:
        self._waiting: deque[MatchRecord] = deque(maxlen=MATCHES_TO_STORE_MAX)
        self.lost = 0
        """How many found no room, because storing did not keep up."""

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, record: MatchRecord) -> None:
        if is_worth_storing(record):
            self.lost += len(self._waiting) == MATCHES_TO_STORE_MAX
            self._waiting.append(record)  # the oldest goes

    def take(self, count: int) -> list[MatchRecord]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def give_back(self, records: Sequence[MatchRecord]) -> None:
        """They could not be stored: next time, as far as there is room."""
        room = MATCHES_TO_STORE_MAX - len(self._waiting)
        kept = records[len(records) - min(room, len(records)) :]
        self.lost += len(records) - len(kept)
        self._waiting.extendleft(reversed(kept))
