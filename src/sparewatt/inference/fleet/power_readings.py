"""Power readings: the last one of each node, and the energy of its jobs until that is stored."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sparewatt.core.ids import NodeId
from sparewatt.protocol.link.node_report import Sensors
from sparewatt.store.power import DailyEnergy

WAITING_MAX = 200_000
"""Nodes and days that wait for the database; when it is away for longer, what comes is not counted."""


class PowerReadings:
    def __init__(self) -> None:
        self._latest: dict[NodeId, Sensors] = {}
        self._waiting: dict[tuple[NodeId, dt.date], tuple[float, float]] = {}

    def note(self, node_id: NodeId, sensors: Sensors, *, unix_s: float) -> None:
        self._latest[node_id] = sensors
        if sensors.working_watts is not None and sensors.working_s > 0:
            day = dt.datetime.fromtimestamp(unix_s, tz=dt.UTC).date()
            self._add(node_id, day, sensors.working_watts * sensors.working_s, sensors.working_s)

    def latest(self, node_id: NodeId) -> Sensors | None:
        return self._latest.get(node_id)

    def forget(self, node_id: NodeId) -> None:
        """The node has left: its reading is dropped, the energy of its jobs still counts."""
        self._latest.pop(node_id, None)

    def take(self) -> list[DailyEnergy]:
        """Take what is not stored yet; give it back if storing fails."""
        waiting, self._waiting = self._waiting, {}
        return [DailyEnergy(node_id, day, joules, seconds) for (node_id, day), (joules, seconds) in waiting.items()]

    def give_back(self, days: Sequence[DailyEnergy]) -> None:
        for each in days:
            self._add(each.node_id, each.day, each.joules, each.working_s)

    def _add(self, node_id: NodeId, day: dt.date, joules: float, seconds: float) -> None:
        before = self._waiting.get((node_id, day))
        if before is None and len(self._waiting) >= WAITING_MAX:
            return
        joules_before, seconds_before = before or (0.0, 0.0)
        self._waiting[node_id, day] = (joules_before + joules, seconds_before + seconds)
