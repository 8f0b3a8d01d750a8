"""Results of nodes' jobs: counted once, and stored later if Postgres is away."""

from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.core.errors import StoreUnavailable
from sparewatt.inference.dispatch.model import MatchRecord, Outcome
from sparewatt.store.node_results import NodeResultCount
from sparewatt.telemetry.history import interval
from sparewatt.telemetry.history.interval import NodeResults
from sparewatt.telemetry.history.writer import HistoryWriter
from sparewatt.telemetry.job_counter import JobCounter
from sparewatt.testing.clocks import ManualClock
from sparewatt.trust.reputation import AttemptResult
from tests.unit.inference.nodes import a_table, node_id
from tests.unit.telemetry.remembering import Remembering
from tests.unit.telemetry.test_history import Stubborn, a_record


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
