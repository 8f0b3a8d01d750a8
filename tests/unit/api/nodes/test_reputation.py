"""What nodes made of their jobs: counted once, kept while Postgres is away, told in full only to who may know."""

from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.core.ids import AccountId
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.store.node_results import NodeResultCount
from sparewatt.telemetry.history import interval
from sparewatt.telemetry.history.interval import NodeResults
from sparewatt.telemetry.history.writer import HistoryWriter
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.testing.clocks import ManualClock
from sparewatt.trust.reputation import AttemptResult
from tests.unit.gateway.small_gateway import ADMIN, LENDER, USER, bearer, make_services, running
from tests.unit.inference.nodes import a_table, node_id
from tests.unit.telemetry.history.test_history import Stubborn, a_record
from tests.unit.telemetry.remembering import Remembering


def lost() -> MatchRecord:
    record = a_record(Outcome.FAILED)
    record.attempts[0].reason = "link_lost: the socket closed"
    return record


async def test_what_cannot_be_stored_is_stored_later_and_once() -> None:
    history, store, clock = Stubborn(), Remembering(), ManualClock()
    history.is_away, store.is_away = False, True
    counter = JobCounter(lambda _: True, clock=clock)
    writer = HistoryWriter(counter, a_table(1), history, store, clock=clock)
    counter.on_finished(a_record())
    counter.on_finished(lost())
    with pytest.raises(StoreUnavailable):
        await writer.store()
    clock.advance(10)
    counter.on_finished(lost())
    store.is_away = False
    await writer.store()
    await writer.close()
    assert {(day.result, day.count) for day in store.kept} == {("done", 1), ("link_lost", 2)}
    assert max(day.last_unix_s for day in store.kept) == clock.unix_s()


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "RESULTS_MAX", 1)
    results = NodeResults()
    for unix_s in (0.0, 86_400.0, 1.0):
        results.add(node_id(1), AttemptResult.DONE, unix_s=unix_s)
    assert results.take() == [NodeResultCount(node_id(1), dt.date(1970, 1, 1), "done", 2, 1.0)]


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
        stranger = await (await client.get(path, headers=bearer(USER))).json()
        table.set_owner(node_id(1), AccountId("acc_user"))
        owner = await (await client.get(path, headers=bearer(USER))).json()
        operator = await (await client.get(path, headers=bearer(ADMIN))).json()
        assert (await client.get("/v1/nodes/0xnobody/reputation", headers=bearer(USER))).status == 404
    assert set(stranger) == {"node", "name", "score", "lower", "half_life_days"}
    assert (stranger["score"], stranger["lower"]) == (0.8, 0.5)
    assert owner == operator
    assert (owner["jobs"], owner["failures"], owner["score"]) == (10, 2, 0.75)
    assert owner["causes"] == [{"cause": "link_lost", "count": 2, "last_unix_s": 7}]
