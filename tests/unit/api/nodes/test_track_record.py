"""How reliable a node was: all details for its owner and operators, rounded figures for others."""

from __future__ import annotations

import datetime as dt

from sparewatt.api.nodes.track_record import describe_day
from sparewatt.core.ids import AccountId
from sparewatt.store.history import HistoryCounts, HistoryKind, HistoryRow
from sparewatt.store.node_results import NodeResultCount
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, bearer, make_services, running
from tests.unit.inference.nodes import a_table, node_id
from tests.unit.telemetry.remembering import Remembering
from tests.unit.telemetry.test_history import Stubborn


def a_day(**figures: float) -> HistoryRow:
    return HistoryRow(node_id(1), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), HistoryCounts(**figures))  # type: ignore[arg-type]


class OneDay(Stubborn):
    async def points(
        self, kind: HistoryKind, *, step_s: int, since_unix_s: float, name: str | None, limit: int
    ) -> list[HistoryRow]:
        return [a_day(jobs=41, failed=3, tokens=12_345, up_s=70_123.4, known_s=86_400.0)]


async def test_what_a_node_did_on_a_day_is_for_its_owner_and_operators() -> None:
    table = a_table(1)
    services = make_services(table)
    services.database.history = OneDay()
    path = f"/v1/nodes/{node_id(1)}/history"
    async with running(services) as client:
        assert (await client.get(path)).status == 401
        assert (await client.get(path, headers=bearer(LENDER))).status == 403
        other = await (await client.get(path, headers=bearer(USER))).json()
        table.set_owner(node_id(1), AccountId("acc_user"))
        owner = await (await client.get(path, headers=bearer(USER))).json()
        operator = await (await client.get(path, headers=bearer(ADMIN))).json()
        assert (await client.get("/v1/nodes/0xnobody/history", headers=bearer(USER))).status == 404
    assert other["data"] == [{"day": "2026-01-02", "up": 0.81}]
    assert owner == operator
    assert owner["data"] == [
        {
            "day": "2026-01-02",
            "up": 0.8116,
            "up_s": 70_123,
            "known_s": 86_400,
            "jobs": 41,
            "failed": 3,
            "tokens": 12_345,
        }
    ]


def test_a_day_without_observation_has_no_uptime() -> None:
    assert describe_day(a_day(jobs=1), in_full=False).up is None
    assert describe_day(a_day(jobs=1), in_full=True).up is None
    assert describe_day(a_day(up_s=0.0, known_s=60.0), in_full=False).up == 0.0


async def test_causes_are_for_the_owner_and_operators() -> None:
    table, store = a_table(1), Remembering()
    services = make_services(table)
    services.database.node_results = store
    today = dt.datetime.fromtimestamp(services.clock.unix_s(), tz=dt.UTC).date()
    store.kept = [
        NodeResultCount(node_id(1), today, "done", 8, 5.0),
        NodeResultCount(node_id(1), today, "link_lost", 2, 7.0),
        NodeResultCount(node_id(1), today, "of_a_newer_release", 9, 9.0),
    ]
    path = f"/v1/nodes/{node_id(1)}/reputation"
    async with running(services) as client:
        assert (await client.get(path)).status == 401
        assert (await client.get(path, headers=bearer(LENDER))).status == 403
        other = await (await client.get(path, headers=bearer(USER))).json()
        table.set_owner(node_id(1), AccountId("acc_user"))
        owner = await (await client.get(path, headers=bearer(USER))).json()
        operator = await (await client.get(path, headers=bearer(ADMIN))).json()
        assert (await client.get("/v1/nodes/0xnobody/reputation", headers=bearer(USER))).status == 404
    assert set(other) == {"node", "name", "score", "lower", "half_life_days"}
    assert (other["score"], other["lower"]) == (0.8, 0.5)
    assert owner == operator
    assert (owner["jobs"], owner["failures"], owner["score"]) == (10, 2, 0.75)
    assert owner["causes"] == [{"cause": "link_lost", "count": 2, "last_unix_s": 7}]
