"""GET /v1/nodes/{node_id}/history: a node's uptime by day, for a year.

How busy it was is for its owner and for operators only: a stranger who reads a day's sums often enough learns the size
of each job.
"""

from __future__ import annotations

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.core.clock import Clock
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.nodes import CalendarDay, UptimeCalendar
from sparewatt.store.history import DAY_S, HistoryCounts, HistoryRow, HistoryStore
from sparewatt.telemetry.feed.public import may_know_all

CALENDAR_DAYS = 365


class UptimeCalendarEndpoints:
    def __init__(self, *, auth: Authenticator, table: NodeTable, history: HistoryStore, clock: Clock) -> None:
        self._auth = auth
        self._table = table
        self._history = history
        self._clock = clock

    @get("/v1/nodes/{node_id}/history")
    async def show_calendar(self, request: web.Request) -> UptimeCalendar:
        """Show a node's days: how long it was up, its jobs."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        row = find_node(self._table, request.match_info["node_id"])
        points = await self._history.points(
            "node",
            step_s=DAY_S,
            since_unix_s=self._clock.unix_s() - CALENDAR_DAYS * DAY_S,
            name=row.id,
            limit=CALENDAR_DAYS + 1,
        )
        describe = full_day if may_know_all(row, principal) else public_day
        return UptimeCalendar(data=[describe(point) for point in points], node=row.id, name=row.specs.name)


def public_day(point: HistoryRow) -> CalendarDay:
    """A day for strangers: the uptime to one percent, which is a quarter of an hour."""
    uptime = _uptime(point.figures)
    return CalendarDay(day=point.at.date().isoformat(), up=None if uptime is None else round(uptime, 2))


def full_day(point: HistoryRow) -> CalendarDay:
    """A day for the node's owner and for operators."""
    figures, uptime = point.figures, _uptime(point.figures)
    return CalendarDay(
        day=point.at.date().isoformat(),
        up=None if uptime is None else round(uptime, 4),
        up_s=round(figures.up_s),
        known_s=round(figures.known_s),
        jobs=figures.jobs,
        failed=figures.failed,
        tokens=figures.tokens,
    )


def _uptime(figures: HistoryCounts) -> float | None:
    """As a share of the time in which a gateway observed the node; None if none did."""
    return min(1.0, figures.up_s / figures.known_s) if figures.known_s > 0 else None
