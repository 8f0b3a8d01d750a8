from __future__ import annotations

import datetime as dt

import pytest

from sparewatt.core.ids import NodeId
from sparewatt.inference.fleet import power_readings
from sparewatt.inference.fleet.power_readings import PowerReadings
from sparewatt.protocol.link.node_report import Sensors
from sparewatt.store.power import DailyEnergy

NODE, OTHER = NodeId("0x1"), NodeId("0x2")
EVENING = dt.datetime(2026, 11, 15, 23, 59, tzinfo=dt.UTC).timestamp()


def working(watts: float, seconds: float) -> Sensors:
    return Sensors(power_watts=watts, working_watts=watts, working_s=seconds)


def test_energy_is_added_up_by_node_and_day() -> None:
    board = PowerReadings()
    board.note(NODE, working(100, 5), unix_s=EVENING)
    board.note(NODE, working(300, 5), unix_s=EVENING + 5)
    board.note(NODE, working(200, 5), unix_s=EVENING + 120)
    board.note(OTHER, working(50, 2), unix_s=EVENING)
    first, second = dt.date(2026, 11, 15), dt.date(2026, 11, 16)
    assert board.take() == [
        DailyEnergy(NODE, first, 2000.0, 10.0),
        DailyEnergy(NODE, second, 1000.0, 5.0),
        DailyEnergy(OTHER, first, 100.0, 2.0),
    ]
    assert board.take() == []


def test_what_could_not_be_stored_is_stored_with_the_next() -> None:
    board = PowerReadings()
    board.note(NODE, working(100, 5), unix_s=EVENING)
    taken = board.take()
    board.note(NODE, working(100, 5), unix_s=EVENING)
    board.give_back(taken)
    assert [(each.joules, each.working_s) for each in board.take()] == [(1000.0, 10.0)]


def test_a_node_that_waits_draws_on_its_owners_account() -> None:
    board = PowerReadings()
    board.note(NODE, Sensors(power_watts=60.0), unix_s=EVENING)
    assert board.take() == []
    assert board.latest(NODE) == Sensors(power_watts=60.0)


def test_a_node_that_left_has_no_reading_but_its_work_counts() -> None:
    board = PowerReadings()
    board.note(NODE, working(100, 5), unix_s=EVENING)
    board.forget(NODE)
    assert board.latest(NODE) is None
    assert len(board.take()) == 1


def test_a_database_that_is_away_for_long_costs_no_memory_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_readings, "WAITING_MAX", 1)
    board = PowerReadings()
    for node in (NODE, OTHER, NODE):
        board.note(node, working(100, 5), unix_s=EVENING)
    assert [(each.node_id, each.working_s) for each in board.take()] == [(NODE, 10.0)]
