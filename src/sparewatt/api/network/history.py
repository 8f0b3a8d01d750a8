"""GET /v1/history: figures over an hour, a day or a month. Public: the network, models, errors by code; no node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from aiohttp import web
from msgspec import structs

from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.csv import as_csv
from sparewatt.api.endpoint import get
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.core.limits import HISTORY_CACHED_MAX, HISTORY_POINTS_MAX
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.network import HistoryFigures, HistoryKind, HistoryPoint, HistorySpan, NetworkHistory
from sparewatt.store.history import DAY_S, HOUR_S, MINUTE_S, HistoryRow, HistoryStore
from sparewatt.telemetry.history.points import describe_figures, describe_point, sum_of

KINDS: dict[str, HistoryKind] = {kind: kind for kind in get_args(HistoryKind)}
SPANS: dict[str, HistorySpan] = {span: span for span in get_args(HistorySpan)}
SPAN_S: dict[HistorySpan, int] = {"24h": 24 * HOUR_S, "1h": HOUR_S, "30d": 30 * DAY_S}
CACHED_S = 5.0


class HistoryCache:
    """The histories of the last seconds, ready to be sent."""

    def __init__(self) -> None:
        self._entries: dict[tuple[HistoryKind, HistorySpan], tuple[float, NetworkHistory]] = {}

    def find(self, kind: HistoryKind, span: HistorySpan, *, now_s: float) -> NetworkHistory | None:
        entry = self._entries.get((kind, span))
        return entry[1] if entry is not None and now_s - entry[0] < CACHED_S else None

    def put(self, history: NetworkHistory, *, now_s: float) -> None:
        if len(self._entries) >= HISTORY_CACHED_MAX:
            self._entries.clear()
        self._entries[history.kind, history.span] = now_s, history


class HistoryEndpoints:
    def __init__(self, *, store: HistoryStore, published: PublicRateLimiter, clock: Clock) -> None:
        """`published`: the rate limit by address of what needs no login."""
        self._store = store
        self._published = published
        self._clock = clock
        self._cache = HistoryCache()

    @get("/v1/history", query=("kind", "span", "name", "format"), is_public=True, csv=True)
    async def show_history(self, request: web.Request) -> NetworkHistory | web.Response:
        """Show what the network did over an hour, a day or a month."""
        self._published.admit(address=context_of(request).address)
        kind, span = KINDS[choice(request, "kind", list(KINDS))], SPANS[choice(request, "span", list(SPANS))]
        name, format_ = request.query.get("name"), choice(request, "format", ["json", "csv"])
        history = await self._history(kind, span)
        points = [point for point in history.data if name in (None, point.name)]
        if format_ == "csv":
            return _csv_reply(points, filename=f"{kind}-{span}.csv")
        return structs.replace(history, data=points)

    async def _history(self, kind: HistoryKind, span: HistorySpan) -> NetworkHistory:
        now_s = self._clock.now_s()
        cached = self._cache.find(kind, span, now_s=now_s)
        if cached is not None:
            return cached
        step_s = MINUTE_S if kind == "network" and span != "30d" else HOUR_S
        since = self._clock.unix_s() - SPAN_S[span]
        points = await self._store.points(kind, step_s=step_s, since_unix_s=since, name=None, limit=HISTORY_POINTS_MAX)
        history = NetworkHistory(
            data=[describe_point(point, step_s=step_s) for point in points],
            kind=kind,
            span=span,
            step_s=step_s,
            totals=_totals(points, SPAN_S[span]),
        )
        self._cache.put(history, now_s=now_s)
        return history


def _csv_reply(points: list[HistoryPoint], *, filename: str) -> web.Response:
    columns = list(HistoryPoint.__struct_fields__) if points else ["at", "name"]
    table = as_csv([structs.asdict(point) for point in points], columns)
    headers = {"content-disposition": f'attachment; filename="{filename}"'}
    return web.Response(text=table, content_type="text/csv", headers=headers)


def _totals(points: Iterable[HistoryRow], span_s: float) -> dict[str, HistoryFigures]:
    """Of the whole span, by name."""
    by_name: dict[str, list[HistoryRow]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    return {name: describe_figures(sum_of(members), step_s=span_s) for name, members in by_name.items()}
