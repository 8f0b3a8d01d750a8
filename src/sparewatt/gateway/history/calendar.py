"""GET /v1/nodes/{node_id}/history: a node's days. How busy it was is told to its owner and to operators alone."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparewatt.gateway.feeds.public import may_know_all
from sparewatt.gateway.feeds.why import find_node
from sparewatt.gateway.http import authenticate, json_reply, listing
from sparewatt.gateway.services import services_of
from sparewatt.store.history import DAY_S, Figures, Point

CALENDAR_DAYS = 365


async def show_calendar(request: web.Request) -> web.StreamResponse:
    """Strangers get the share of each day that it was up: a day's sums, read often enough, are those of each job."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    row = find_node(services.table, request.match_info["node_id"])
    since = services.clock.unix_s() - CALENDAR_DAYS * DAY_S
    store = services.database.history
    points = await store.points("node", step_s=DAY_S, since_unix_s=since, name=row.id, limit=CALENDAR_DAYS + 1)
    describe = describe_day if may_know_all(row, who) else describe_to_strangers
    return json_reply(listing([describe(point) for point in points]) | {"node": row.id, "name": row.specs.name})


def describe_to_strangers(point: Point) -> dict[str, Any]:
    """To the percent, which is a quarter of an hour."""
    up = _up(point.figures)
    return {"day": point.at.date().isoformat(), "up": None if up is None else round(up, 2)}


def describe_day(point: Point) -> dict[str, Any]:
    figures, up = point.figures, _up(point.figures)
    return {
        "day": point.at.date().isoformat(),
        "up": None if up is None else round(up, 4),
        "up_s": round(figures.up_s),
        "known_s": round(figures.known_s),
        "jobs": figures.jobs,
        "failed": figures.failed,
        "tokens": figures.tokens,
    }


def _up(figures: Figures) -> float | None:
    """Of the time that a gateway looked; None where none did."""
    return min(1.0, figures.up_s / figures.known_s) if figures.known_s > 0 else None
