"""How reliable a node was: GET /v1/nodes/{node_id}/reputation, and …/history, its uptime by day for a year.

Other accounts get rounded scores and uptimes. How busy the node was, why it failed and when, is for its owner and for
operators only: from a day's sums, read often enough, the size of each job could be computed.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import cast

from aiohttp import web
from msgspec import structs

from sparewatt.accounts.principal import Principal
from sparewatt.api.endpoint import endpoint
from sparewatt.core.clock import Clock
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.nodes import (
    CalendarDay,
    FailureCauseName,
    NodeFailureCount,
    NodeReputation,
    UptimeCalendar,
)
from sparewatt.store.history import DAY_S, HistoryRow, HistoryStore
from sparewatt.store.node_results import NodeResultStore
from sparewatt.telemetry.feed.public import may_know_all
from sparewatt.trust.reputation import HALF_LIFE_DAYS, AttemptResult, DayCount, Reputation, reputation_of

CALENDAR_DAYS = 365
_RESULTS = {result.value: result for result in AttemptResult}


@dataclass(slots=True, kw_only=True)
class TrackRecordEndpoints:
    table: NodeTable
    results: NodeResultStore
    history: HistoryStore
    clock: Clock

    @endpoint("GET /v1/nodes/{node_id}/reputation", access="inference")
    async def show_reputation(self, request: web.Request, principal: Principal) -> NodeReputation:
        """Show how far a node can be relied on; to its owner, why."""
        row = find_node(self.table, request.match_info["node_id"])
        today = dt.datetime.fromtimestamp(self.clock.unix_s(), tz=dt.UTC).date()
        counts = [
            DayCount(day.day, _RESULTS[day.result], day.count, day.last_unix_s)
            for day in await self.results.counts_of(row.id)
            if day.result in _RESULTS  # others are known to a newer release only
        ]
        reputation = reputation_of(counts, today=today)
        return describe_reputation(reputation, row, in_full=may_know_all(row, principal))

    @endpoint("GET /v1/nodes/{node_id}/history", access="inference")
    async def show_calendar(self, request: web.Request, principal: Principal) -> UptimeCalendar:
        """Show a node's days: how long it was up, its jobs."""
        row = find_node(self.table, request.match_info["node_id"])
        points = await self.history.points(
            "node",
            step_s=DAY_S,
            since_unix_s=self.clock.unix_s() - CALENDAR_DAYS * DAY_S,
            name=row.id,
            limit=CALENDAR_DAYS + 1,
        )
        in_full = may_know_all(row, principal)
        days = [describe_day(point, in_full=in_full) for point in points]
        return UptimeCalendar(data=days, node=row.id, name=row.specs.name)


def describe_reputation(reputation: Reputation, row: NodeRow, *, in_full: bool) -> NodeReputation:
    digits = 4 if in_full else 1
    described = NodeReputation(
        node=row.id,
        name=row.specs.name,
        score=round(reputation.score, digits),
        lower=round(reputation.lower, digits),
        half_life_days=HALF_LIFE_DAYS,
    )
    if not in_full:
        return described
    causes = [
        NodeFailureCount(
            cause=cast("FailureCauseName", cause.result.value),  # a cause is never `done`
            count=cause.count,
            last_unix_s=round(cause.last_unix_s),
        )
        for cause in reputation.causes
    ]
    return structs.replace(described, jobs=reputation.jobs, failures=reputation.failures, causes=causes)


def describe_day(point: HistoryRow, *, in_full: bool) -> CalendarDay:
    """Other accounts get the uptime to one percent, which is a quarter of an hour."""
    figures, digits = point.figures, 4 if in_full else 2
    # As a share of the time in which a gateway observed the node.
    uptime = min(1.0, figures.up_s / figures.known_s) if figures.known_s > 0 else None
    described = CalendarDay(day=point.at.date().isoformat(), up=None if uptime is None else round(uptime, digits))
    if not in_full:
        return described
    up_s, known_s = round(figures.up_s), round(figures.known_s)
    return structs.replace(
        described, up_s=up_s, known_s=known_s, jobs=figures.jobs, failed=figures.failed, tokens=figures.tokens
    )
