"""What nodes made of their jobs, counted until it is stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.model import MatchRecord
from sparewatt.inference.reputation import result_of
from sparewatt.store.records import DayRecord

WAITING_MAX = 200_000
"""Nodes, days and results that wait for the database; when it is away for longer, what comes is not counted."""

_Key = tuple[NodeId, dt.date, str]


class RecordBoard:
    def __init__(self) -> None:
        self._waiting: dict[_Key, DayRecord] = {}

    def note(self, record: MatchRecord, *, unix_s: float) -> None:
        """A job is over. One that free credits pay never comes to a node of whoever asks: the matcher sees to that."""
        day = dt.datetime.fromtimestamp(unix_s, tz=dt.UTC).date()
        for attempt in record.attempts:
            result = result_of(attempt, record)
            if result is not None:
                self._add(DayRecord(attempt.node_id, day, result.value, 1, unix_s))

    def take(self) -> list[DayRecord]:
        """What is not stored yet. Whoever cannot store it gives it back."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    def give_back(self, days: Sequence[DayRecord]) -> None:
        for each in days:
            self._add(each)

    def _add(self, new: DayRecord) -> None:
        key = new.node_id, new.day, new.result
        known = self._waiting.get(key)
        if known is not None:
            last_unix_s = max(known.last_unix_s, new.last_unix_s)
            self._waiting[key] = DayRecord(*key, known.count + new.count, last_unix_s)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting[key] = new
