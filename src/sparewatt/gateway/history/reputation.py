"""GET /v1/nodes/{node_id}/reputation: how far a node can be relied on, and for its owner what it failed by."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from sparewatt.gateway.feeds.public import may_know_all
from sparewatt.gateway.feeds.why import find_node
from sparewatt.gateway.http import authenticate, json_reply
from sparewatt.gateway.services import services_of
from sparewatt.inference.reputation import HALF_LIFE_DAYS, DayCount, Reputation, Result, reputation_of
from sparewatt.store.records import DayRecord

_RESULTS = {result.value: result for result in Result}


async def show_reputation(request: web.Request) -> web.StreamResponse:
    """Strangers get the score and its lower bound, rounded: how busy a node is, and when it failed, is its owner's."""
    services = services_of(request)
    who = await authenticate(request, "inference")
    row = find_node(services.table, request.match_info["node_id"])
    today = dt.datetime.fromtimestamp(services.clock.unix_s(), tz=dt.UTC).date()
    found = reputation_of(_counts(await services.database.records.of(row.id)), today=today)
    described = describe_reputation(found) if may_know_all(row, who) else describe_to_strangers(found)
    return json_reply({"node": row.id, "name": row.specs.name} | described)


def _counts(days: Iterable[DayRecord]) -> list[DayCount]:
    """A result that only a newer release knows is left out."""
    return [
        DayCount(day.day, _RESULTS[day.result], day.count, day.last_unix_s) for day in days if day.result in _RESULTS
    ]


def describe_reputation(found: Reputation) -> dict[str, Any]:
    return {
        "score": round(found.score, 4),
        "lower": round(found.lower, 4),
        "half_life_days": HALF_LIFE_DAYS,
        "jobs": found.jobs,
        "failures": found.failures,
        "causes": [
            {"cause": cause.result.value, "count": cause.count, "last_unix_s": round(cause.last_unix_s)}
            for cause in found.causes
        ],
    }


def describe_to_strangers(found: Reputation) -> dict[str, Any]:
    return {"score": round(found.score, 1), "lower": round(found.lower, 1), "half_life_days": HALF_LIFE_DAYS}
