"""GET /v1/history: lines over a day or a month. Public: the network, models, errors by code; no node, no account."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sparewatt.core.limits import HISTORY_CACHED_MAX, HISTORY_POINTS_MAX
from sparewatt.gateway.history.lines import describe_figures, describe_point, sum_of
from sparewatt.gateway.http import address_of, json_reply, listing
from sparewatt.gateway.money.pages import as_csv, choice
from sparewatt.gateway.services import Services, services_of
from sparewatt.store.history import DAY_S, HOUR_S, MINUTE_S, Kind, Point

SPANS = {"24h": 24 * HOUR_S, "1h": HOUR_S, "30d": 30 * DAY_S}
KINDS: dict[str, Kind] = {"network": "network", "model": "model", "error": "error"}
CACHED_S = 5.0

_Line = dict[str, Any]


class Lines:
    """Those asked for a moment ago, ready."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, _Line]] = {}

    def find(self, key: tuple[str, str], *, now_s: float) -> _Line | None:
        made_s, line = self._kept.get(key, (0.0, None))
        return line if line is not None and now_s - made_s < CACHED_S else None

    def put(self, key: tuple[str, str], line: _Line, *, now_s: float) -> None:
        if len(self._kept) >= HISTORY_CACHED_MAX:
            self._kept.clear()
        self._kept[key] = now_s, line


LINES = web.AppKey("lines", Lines)


async def show_history(request: web.Request) -> web.StreamResponse:
    services = services_of(request)
    services.doors.published.knock(address=address_of(request))
    kind, span = choice(request, "kind", list(KINDS)), choice(request, "span", list(SPANS))
    name, shape = request.query.get("name"), choice(request, "format", ["json", "csv"])
    line = await _line(request.app[LINES], KINDS[kind], span, services)
    points = [point for point in line["data"] if name in (None, point["name"])]
    if shape == "csv":
        headers = {"content-disposition": f'attachment; filename="{kind}-{span}.csv"'}
        columns = list(points[0]) if points else ["at", "name"]
        return web.Response(text=as_csv(points, columns), content_type="text/csv", headers=headers)
    return json_reply(line | {"data": points})


async def _line(lines: Lines, kind: Kind, span: str, services: Services) -> _Line:
    now_s = services.clock.now_s()
    kept = lines.find((kind, span), now_s=now_s)
    if kept is not None:
        return kept
    step_s = MINUTE_S if kind == "network" and span != "30d" else HOUR_S
    since = services.clock.unix_s() - SPANS[span]
    store = services.database.history
    points = await store.points(kind, step_s=step_s, since_unix_s=since, name=None, limit=HISTORY_POINTS_MAX)
    line = listing([describe_point(point, step_s=step_s) for point in points]) | {
        "kind": kind,
        "span": span,
        "step_s": step_s,
        "totals": _totals(points, SPANS[span]),
    }
    lines.put((kind, span), line, now_s=now_s)
    return line


def _totals(points: list[Point], span_s: float) -> dict[str, _Line]:
    """Of the whole span, by name."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    return {name: describe_figures(sum_of(named), step_s=span_s) for name, named in by_name.items()}
