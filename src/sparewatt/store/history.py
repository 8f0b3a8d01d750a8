"""What the network did, minute by minute, hour by hour and day by day. Gateways add to the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sparewatt.store.connection_pool import ConnectionPool

HistoryKind = Literal["network", "model", "node", "error"]
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400

STEPS_S: Mapping[HistoryKind, tuple[int, ...]] = {
    "network": (MINUTE_S, HOUR_S, DAY_S),
    "model": (HOUR_S,),
    "node": (DAY_S,),
    "error": (HOUR_S,),
}
"""How finely each kind is kept. Ten thousand nodes by the minute would be the largest table here."""

KEPT_S: Mapping[int, int] = {MINUTE_S: 26 * HOUR_S, HOUR_S: 32 * DAY_S, DAY_S: 400 * DAY_S}


@dataclass(slots=True)
class HistoryCounts:
    """Counts of one step. The lists are counts per bucket, empty where there is nothing to count."""

    jobs: int = 0
    failed: int = 0
    cancelled: int = 0
    tokens: int = 0
    first_token: list[int] = field(default_factory=list)
    speed: list[int] = field(default_factory=list)
    up_s: float = 0.0
    known_s: float = 0.0
    """How much of the step somebody looked; of that, `up_s` it was there."""
    nodes: int = 0
    gpus: int = 0
    vram_bytes: int = 0

    def add(self, other: HistoryCounts) -> None:
        """Counts are added; how many there are at a time is the larger."""
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


class HistoryStore:
    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def add(self, counted: Mapping[tuple[HistoryKind, str], HistoryCounts], *, unix_s: float) -> None:
        """To every step that the moment lies in, all or none."""
        rows = [
            (step, kind, name, unix_s // step * step, figures)
            for (kind, name), figures in counted.items()
            for step in STEPS_S[kind]
        ]
        if not rows:
            return
        *keys, all_figures = zip(*rows, strict=True)
        values = [[getattr(each, column) for each in all_figures] for column in _COUNTS]
        lists = [[_text(getattr(each, column)) for each in all_figures] for column in _LISTS]
        await self._pool.execute("add_history", *map(list, keys), *values, *lists)

    async def points(
        self, kind: HistoryKind, *, step_s: int, since_unix_s: float, name: str | None, limit: int
    ) -> list[HistoryRow]:
        """The latest, in order of time."""
        rows = await self._pool.rows("history_points", step_s, kind, since_unix_s, name, limit)
        return [_point(dict(row.items())) for row in rows]

    async def forget_old(self) -> None:
        for step_s, kept_s in KEPT_S.items():
            await self._pool.execute("forget_history", step_s, kept_s)


_COUNTS = ("jobs", "failed", "cancelled", "tokens", "up_s", "known_s", "nodes", "gpus", "vram_bytes")
_LISTS = ("first_token", "speed")


def _text(counts: list[int]) -> str:
    """As Postgres writes an array; lists of lists must all have one length there."""
    return "{" + ",".join(map(str, counts)) + "}"


def _sum(one: list[int], other: list[int]) -> list[int]:
    if not one or not other:
        return one or other
    return [a + b for a, b in zip(one, other, strict=True)]


def _point(values: dict[str, object]) -> HistoryRow:
    name, at = values.pop("name"), values.pop("at")
    assert isinstance(name, str)  # noqa: S101 (for the type checker: a column of text)
    assert isinstance(at, dt.datetime)  # noqa: S101
    return HistoryRow(name, at, HistoryCounts(**values))  # type: ignore[arg-type]  # the columns are its fields
