"""GET /v1/nodes/{node_id}/reputation: how reliable a node is.

Strangers get the score and its lower bound, rounded. How busy the node is, why it failed and when, is for its owner and
for operators only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import cast

from aiohttp import web

from sparewatt.api.endpoint import get
from sparewatt.core.clock import Clock
from sparewatt.edge.auth import Authenticator
from sparewatt.edge.middleware import context_of
from sparewatt.inference.fleet.find_node import find_node
from sparewatt.inference.matcher.node_row import NodeRow
from sparewatt.inference.matcher.table import NodeTable
from sparewatt.protocol.api.nodes import FailureCauseName, NodeFailureCount, NodeReputation
from sparewatt.store.node_results import NodeResultCount, NodeResultStore
from sparewatt.telemetry.feed.public import may_know_all
from sparewatt.trust.reputation import HALF_LIFE_DAYS, AttemptResult, DayCount, Reputation, reputation_of

_RESULTS = {result.value: result for result in AttemptResult}


class ReputationEndpoints:
    def __init__(self, *, auth: Authenticator, table: NodeTable, records: NodeResultStore, clock: Clock) -> None:
        self._auth = auth
        self._table = table
        self._records = records
        self._clock = clock

    @get("/v1/nodes/{node_id}/reputation")
    async def show_reputation(self, request: web.Request) -> NodeReputation:
        """Show how far a node can be relied on; to its owner, why."""
        principal = await self._auth.authenticate(context_of(request), "inference")
        row = find_node(self._table, request.match_info["node_id"])
        today = dt.datetime.fromtimestamp(self._clock.unix_s(), tz=dt.UTC).date()
        reputation = reputation_of(_counts(await self._records.counts_of(row.id)), today=today)
        describe = full_reputation if may_know_all(row, principal) else public_reputation
        return describe(reputation, row)


def _counts(days: Iterable[NodeResultCount]) -> list[DayCount]:
    """Without results that only a newer release knows."""
    return [
        DayCount(day.day, _RESULTS[day.result], day.count, day.last_unix_s) for day in days if day.result in _RESULTS
    ]


def full_reputation(reputation: Reputation, row: NodeRow) -> NodeReputation:
    return NodeReputation(
        node=row.id,
        name=row.specs.name,
        score=round(reputation.score, 4),
        lower=round(reputation.lower, 4),
        half_life_days=HALF_LIFE_DAYS,
        jobs=reputation.jobs,
        failures=reputation.failures,
        causes=[
            NodeFailureCount(
                cause=cast("FailureCauseName", cause.result.value),  # a cause is never `done`
                count=cause.count,
                last_unix_s=round(cause.last_unix_s),
            )
            for cause in reputation.causes
        ],
    )


def public_reputation(reputation: Reputation, row: NodeRow) -> NodeReputation:
    return NodeReputation(
        node=row.id,
        name=row.specs.name,
        score=round(reputation.score, 1),
        lower=round(reputation.lower, 1),
        half_life_days=HALF_LIFE_DAYS,
    )
