"""GET /v1/history: figures over an hour, a day or a month. Public: the network, models, errors by code; no node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from aiohttp import web
from msgspec import structs

from sparewatt.accounts.public_rate_limits import PublicRateLimiter
from sparewatt.api.csv import csv_reply
from sparewatt.api.endpoint import endpoint
from sparewatt.api.query import choice
from sparewatt.core.clock import Clock
from sparewatt.edge.middleware import context_of
from sparewatt.protocol.api.network import HistoryFigures, HistoryKind, HistoryPoint, HistorySpan, NetworkHistory
from sparewatt.store.history import DAY_S, HOUR_S, MINUTE_S, HistoryRow, HistoryStore
from sparewatt.telemetry.history.points import describe_figures, describe_point, sum_of

KINDS: tuple[HistoryKind, ...] = get_args(HistoryKind)
SPANS: tuple[HistorySpan, ...] = get_args(HistorySpan)
SPAN_S: dict[HistorySpan, int] = {"24h": 24 * HOUR_S, "1h": HOUR_S, "30d": 30 * DAY_S}
HISTORY_POINTS_MAX = 3_000
"""Points of one reply: a day by minutes, or two months by hours."""
CACHED_S = 5.0
"""Many clients request the same few histories."""


@dataclass(slots=True, kw_only=True)
class HistoryEndpoints:
    store: HistoryStore
    public_limiter: PublicRateLimiter
    """By address, for endpoints without a login."""
    clock: Clock
    _cache: dict[tuple[HistoryKind, HistorySpan], tuple[float, NetworkHistory]] = field(
        default_factory=dict, init=False
    )
    """When each was read, and what it was. Bounded by the number of kinds and spans."""

    @endpoint("GET /v1/history", access="public", query=("kind", "span", "name", "format"), csv=True)
    async def show_history(self, request: web.Request) -> NetworkHistory | web.Response:
        """Show what the network did over an hour, a day or a month."""
        self.public_limiter.admit(address=context_of(request).address)
        kind, span = choice(request, "kind", KINDS), choice(request, "span", SPANS)
        name, format_ = request.query.get("name"), choice(request, "format", ["json", "csv"])
        history = await self._history(kind, span)
        points = [point for point in history.data if name in (None, point.name)]
        if format_ == "csv":
            columns = HistoryPoint.__struct_fields__ if points else ("at", "name")
            return csv_reply(points, columns, filename=f"{kind}-{span}.csv")
        return structs.replace(history, data=points)

    async def _history(self, kind: HistoryKind, span: HistorySpan) -> NetworkHistory:
        now_s = self.clock.now_s()
        cached = self._cache.get((kind, span))
        if cached is not None and now_s - cached[0] < CACHED_S:
            return cached[1]
        step_s = MINUTE_S if kind == "network" and span != "30d" else HOUR_S
        since = self.clock.unix_s() - SPAN_S[span]
        points = await self.store.points(kind, step_s=step_s, since_unix_s=since, name=None, limit=HISTORY_POINTS_MAX)
        history = NetworkHistory(
            data=[describe_point(point, step_s=step_s) for point in points],
            kind=kind,
            span=span,
            step_s=step_s,
            totals=_totals(points, SPAN_S[span]),
        )
        self._cache[kind, span] = now_s, history
        return history


def _totals(points: Iterable[HistoryRow], span_s: float) -> dict[str, HistoryFigures]:
    """Of the whole span, by name."""
    by_name: dict[str, list[HistoryRow]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    return {name: describe_figures(sum_of(members), step_s=span_s) for name, members in by_name.items()}
