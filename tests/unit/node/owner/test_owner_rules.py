from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.node.owner.owner_rules import (
    CEILING_HOLD_S,
    FILE,
    UNTIL_RESUMED_UNIX_S,
    BadHours,
    OwnerRules,
    PauseMonitor,
    WorkingHours,
    parse_hours,
    read_owner_rules,
    write_owner_rules,
)
from sparewatt.protocol.link.node_report import GpuReading

NIGHT = parse_hours(("22:00-07:00",), "Europe/Berlin")


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("moment", "works"),
    [
        ("2026-11-15T21:59:00+01:00", False),
        ("2026-11-15T22:00:00+01:00", True),
        ("2026-11-16T06:59:59+01:00", True),
        ("2026-11-16T07:00:00+01:00", False),
        ("2026-07-15T22:30:00+02:00", True),  # in summer too, by the clock on the wall
        ("2026-07-15T20:30:00+00:00", True),
        ("2026-07-15T19:30:00+00:00", False),
    ],
)
def test_hours_go_over_midnight_and_follow_the_clock_on_the_wall(moment: str, works: bool) -> None:  # noqa: FBT001 (a case)
    assert NIGHT.contains(at(moment)) is works


def test_several_spans_and_the_end_of_a_day() -> None:
    hours = parse_hours(("09:00-12:00", "20:00-24:00"), "UTC")
    held = [hour for hour in range(24) if hours.contains(at(f"2026-11-15T{hour:02}:30:00+00:00"))]
    assert held == [9, 10, 11, 20, 21, 22, 23]
    assert str(hours) == "09:00-12:00, 20:00-24:00 (UTC)"


def test_without_a_zone_the_machines_own_counts() -> None:
    noon = dt.datetime(2026, 11, 15, 12, 30).astimezone()
    assert parse_hours(("12:00-13:00",), None).contains(noon.timestamp())
    assert not parse_hours(("13:00-14:00",), None).contains(noon.timestamp())


@pytest.mark.parametrize(
    "text", ["", "22-7", "22:00", "25:00-07:00", "10:00-10:00", "10:60-11:00", "24:30-01:00", "a-b"]
)
def test_a_span_with_a_typo_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadHours):
        parse_hours((text,), None)


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadHours, match="Europe/Berlin"):
        parse_hours(("22:00-07:00",), "Europe/Atlantis")


def test_a_zone_that_is_gone_later_does_not_stop_the_node() -> None:
    assert isinstance(WorkingHours(NIGHT.spans, "Europe/Atlantis").contains(0.0), bool)


class Node:
    """One node's pauses, over time."""

    def __init__(self, rules: OwnerRules) -> None:
        self._pauses, self._rules, self._now_s = PauseMonitor(), rules, 0.0

    def why(self, *, after_s: float = 0.0, celsius: float | None = None, watts: float | None = None) -> str | None:
        self._now_s += after_s
        readings = [GpuReading(temperature_c=celsius)]
        return self._pauses.reason(
            self._rules, readings=readings, watts=watts, unix_s=1e9 + self._now_s, now_s=self._now_s
        )


def test_without_rules_there_is_no_pause() -> None:
    assert Node(OwnerRules()).why(celsius=120, watts=9000) is None


def test_an_owners_pause_ends_by_itself_or_never() -> None:
    node = Node(OwnerRules(paused_until_unix_s=1e9 + 60))
    assert node.why() == "its owner paused it"
    assert node.why(after_s=61) is None
    assert Node(OwnerRules(paused_until_unix_s=UNTIL_RESUMED_UNIX_S)).why(after_s=1e9) is not None
    assert OwnerRules(paused_until_unix_s=UNTIL_RESUMED_UNIX_S).pause_end_unix_s is None


def test_outside_its_hours_a_node_is_paused_with_the_hours_as_reason() -> None:
    noon = Node(OwnerRules(hours=parse_hours(("00:00-00:01",), "UTC")))
    assert "00:00-00:01" in (noon.why() or "")


def test_heat_pauses_until_the_card_is_well_below_the_ceiling() -> None:
    node = Node(OwnerRules(temperature_max_c=80))
    assert node.why(celsius=79) is None
    assert "too hot" in (node.why(celsius=80, after_s=1) or "")
    assert node.why(celsius=75, after_s=CEILING_HOLD_S - 1) is not None, "still near the ceiling"
    assert node.why(celsius=71, after_s=CEILING_HOLD_S - 1) is not None, "cool, but the hold is not over"
    assert node.why(celsius=71, after_s=2) is None


def test_power_pauses_and_comes_back() -> None:
    node = Node(OwnerRules(watts_max=300))
    assert node.why(watts=299) is None
    assert "300 W" in (node.why(watts=301, after_s=1) or "")
    assert node.why(watts=50, after_s=CEILING_HOLD_S + 1) is None


def test_an_unknown_reading_exceeds_no_ceiling() -> None:
    node = Node(OwnerRules(watts_max=300, temperature_max_c=80))
    assert node.why() is None
    assert node.why(celsius=90, watts=50) is not None
    assert node.why(after_s=CEILING_HOLD_S + 1) is None


def test_rules_survive_a_restart_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    assert read_owner_rules(tmp_path) == OwnerRules()
    rules = OwnerRules(paused_until_unix_s=5.0, hours=NIGHT, watts_max=300, temperature_max_c=80)
    write_owner_rules(tmp_path, rules)
    assert read_owner_rules(tmp_path) == rules
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
    (tmp_path / FILE).write_text('{"watts_max": -1}')
    with pytest.raises(StartupError, match="Remove it"):
        read_owner_rules(tmp_path)
