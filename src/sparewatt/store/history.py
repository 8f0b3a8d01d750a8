"""The network's history: counts by minute, hour and day. All gateways add to the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparewatt.core.limits import NODES_MAX
from sparewatt.store.connection_pool import Store

HistoryKind = Literal["network", "model", "node", "error"]
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400

STEPS_S: Mapping[HistoryKind, tuple[int, ...]] = {
    "network": (MINUTE_S, HOUR_S, DAY_S),
    "model": (HOUR_S,),
    "node": (DAY_S,),
    "error": (HOUR_S,),
}
"""The steps that each kind is stored in. Ten thousand nodes by the minute would be the largest table of all."""

KEPT_S: Mapping[int, int] = {MINUTE_S: 26 * HOUR_S, HOUR_S: 32 * DAY_S, DAY_S: 400 * DAY_S}


@dataclass(slots=True)
class HistoryCounts:
    """Counts of one step. The lists are histograms: counts per bucket, empty if nothing was counted."""

    jobs: int = 0
    failed: int = 0
    cancelled: int = 0
    tokens: int = 0
    first_token: list[int] = field(default_factory=list)
    speed: list[int] = field(default_factory=list)
    up_s: float = 0.0
    known_s: float = 0.0
    """For how long the network or node was observed; for `up_s` of that it was up."""
    nodes: int = 0
    gpus: int = 0
    vram_bytes: int = 0

    def add(self, other: HistoryCounts) -> None:
        """Counts are added up; of numbers at a time (nodes, GPUs, VRAM) the larger counts."""
        self.jobs += other.jobs
        self.failed += other.failed
        self.cancelled += other.cancelled
        self.tokens += other.tokens
        self.up_s += other.up_s
        self.known_s += other.known_s
        self.first_token = _sum(self.first_token, other.first_token)
        self.speed = _sum(self.speed, other.speed)
        self.nodes = max(self.nodes, other.nodes)
        self.gpus = max(self.gpus, other.gpus)
        self.vram_bytes = max(self.vram_bytes, other.vram_bytes)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    name: str
    at: dt.datetime
    figures: HistoryCounts


@dataclass(frozen=True, slots=True)
class NodeUptime:
    name: str
    up_s: float
    known_s: float
    days: int
    """On which it was observed."""


class HistoryStore(Store):
    async def add(self, counted: Mapping[tuple[HistoryKind, str], HistoryCounts], *, unix_s: float) -> None:
        """To every step that the moment is in, all or none."""
        rows = [
            (step, kind, name, unix_s // step * step, figures)
            for (kind, name), figures in counted.items()
            for step in STEPS_S[kind]
        ]
        if not rows:
            return
        *keys, all_figures = zip(*rows, strict=True)
        values = [[getattr(each, column) for each in all_figures] for column in _COUNTS]
        lists = [[_array_text(getattr(each, column)) for each in all_figures] for column in _LISTS]
        await self._pool.execute("add_history", *keys, *values, *lists)

    async def points(
        self, kind: HistoryKind, *, step_s: int, since_unix_s: float, name: str | None, limit: int
    ) -> list[HistoryRow]:
        """The latest, in order of time."""
        return await self._pool.rows_as(_history_row, "history_points", step_s, kind, since_unix_s, name, limit)

    async def node_uptimes(self, *, since_unix_s: float) -> list[NodeUptime]:
        """Of every node, over all days from then on."""
        return await self._pool.rows_as(NodeUptime, "node_uptimes", DAY_S, since_unix_s, NODES_MAX)

    async def forget_old(self) -> None:
        for step_s, kept_s in KEPT_S.items():
            await self._pool.execute("forget_history", step_s, kept_s)


_COUNTS = ("jobs", "failed", "cancelled", "tokens", "up_s", "known_s", "nodes", "gpus", "vram_bytes")
_LISTS = ("first_token", "speed")


def _array_text(counts: list[int]) -> str:
    """An array in Postgres's text form: an array of arrays would need all of one length."""
    return "{" + ",".join(map(str, counts)) + "}"


def _sum(one: list[int], other: list[int]) -> list[int]:
    if not one or not other:
        return one or other
    return [a + b for a, b in zip(one, other, strict=True)]


def _history_row(*, name: str, at: dt.datetime, **counts: Any) -> HistoryRow:
    return HistoryRow(name, at, HistoryCounts(**counts))
