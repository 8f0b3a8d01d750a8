"""Matches that were made or ended lately, in order: readers keep a cursor, nothing is pushed to them."""

from __future__ import annotations

from collections import deque

from sparewatt.inference.dispatch.model import MatchRecord

CHANGES_KEPT = 2_000
"""A reader that looks twice a second misses none up to 4,000 a second; what it missed is counted."""


class MatchChanges:
    def __init__(self) -> None:
        self._last: deque[MatchRecord] = deque(maxlen=CHANGES_KEPT)
        self.cursor = 0
        """How many there have been."""

    def add(self, record: MatchRecord) -> None:
        self.cursor += 1
        self._last.append(record)

    def since(self, cursor: int) -> tuple[list[MatchRecord], int]:
        """Those after a cursor, the oldest first, each as it is now; and how many more are not kept."""
        count = self.cursor - cursor
        if count <= 0:
            return [], 0
        kept = list(self._last)[-count:]
        return kept, count - len(kept)
