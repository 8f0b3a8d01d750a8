"""When models are measured, and which models on disk are loaded for that."""

from __future__ import annotations

import pytest

from sparewatt.node.backends.backend import BackendModel
from sparewatt.node.measurement.measurement_schedule import (
    CHECK_AFTER_S,
    DISAGREE_S,
    LOADED_MAX,
    OBSERVATIONS_MAX,
    OBSERVATIONS_MIN,
    REST_RETRY_S,
    RETRY_S,
    MeasurementSchedule,
    SpeedObservations,
    may_load,
)
from tests.unit.node.rig import backend_model


def can_load(one: BackendModel, models: list[BackendModel], measured: set[str], vram: int = 10**10) -> bool:
    return may_load(one, models, vram_bytes=vram, is_measured=lambda each: each.id in measured)


def test_models_on_disk_are_loaded_to_be_measured_if_they_fit_and_nothing_else_waits() -> None:
    disk = [backend_model(f"d{number}", "on_disk") for number in range(8)]
    assert can_load(disk[0], disk, set())
    assert not can_load(disk[0], disk, set(), vram=10**9), "it does not fit"
    assert not can_load(disk[0], [*disk, backend_model("w")], set()), "one that is loaded comes first"
    assert can_load(disk[0], [*disk, backend_model("w")], {"w"})
    measured = {each.id for each in disk[:LOADED_MAX]}
    assert not can_load(disk[-1], disk, measured), "few at all"
    assert not can_load(backend_model("l", "loading"), [], set())


# when


def is_due(
    schedule: MeasurementSchedule, now_s: float, *, measured: bool = True, complete: bool = True, idle: bool = True
) -> bool:
    return schedule.is_due("m", is_measured=measured, is_complete=complete, is_idle=idle, now_s=now_s)


def start(schedule: MeasurementSchedule, now_s: float, *, measured: bool = True, complete: bool = True) -> None:
    schedule.note_started("m", was_measured=measured, was_complete=complete, now_s=now_s)


def test_a_new_model_is_measured_at_once_even_on_a_busy_node() -> None:
    assert is_due(MeasurementSchedule(), 0.0, measured=False, complete=False, idle=False)


def test_a_first_measurement_that_failed_is_repeated_after_a_minute() -> None:
    schedule = MeasurementSchedule()
    start(schedule, 0.0, measured=False, complete=False)
    assert not is_due(schedule, RETRY_S - 1, measured=False, complete=False)
    assert is_due(schedule, RETRY_S, measured=False, complete=False)


def test_the_rest_follows_at_once_and_only_on_an_idle_node() -> None:
    schedule = MeasurementSchedule()
    start(schedule, 0.0, measured=False, complete=False)
    schedule.note_first("m")
    assert not is_due(schedule, 1.0, complete=False, idle=False)
    assert is_due(schedule, 1.0, complete=False)
    start(schedule, 1.0, complete=False)
    assert not is_due(schedule, 2.0, complete=False)
    assert is_due(schedule, 1.0 + REST_RETRY_S, complete=False)


def test_checks_become_rare() -> None:
    schedule, now_s = MeasurementSchedule(), 0.0
    assert not is_due(schedule, now_s)
    for wait_s in (*CHECK_AFTER_S, CHECK_AFTER_S[-1]):
        assert not is_due(schedule, now_s + wait_s - 1)
        now_s += wait_s
        assert is_due(schedule, now_s)
        start(schedule, now_s)


def test_a_disagreement_brings_a_check_forward_but_not_more_often_than_every_ten_minutes() -> None:
    schedule = MeasurementSchedule()
    assert not is_due(schedule, 0.0)
    for now_s in (60.0, 660.0):
        start(schedule, now_s)
    assert not is_due(schedule, 1000.0)
    schedule.note_disagreement("m", now_s=1000.0)
    assert not is_due(schedule, 660.0 + DISAGREE_S - 1)
    assert is_due(schedule, 660.0 + DISAGREE_S)


# whether jobs agree


def observed(*ratios: float, what: str = "writing") -> SpeedObservations:
    observations = SpeedObservations()
    for ratio in ratios:
        observations.note("m", what, seen_s=ratio, expected_s=1.0)
    return observations


@pytest.mark.parametrize(("ratio", "disagree"), [(1.6, True), (1.4, False), (1.0, False), (0.7, False), (0.6, True)])
def test_jobs_disagree_with_a_curve_that_is_far_off_either_way(ratio: float, *, disagree: bool) -> None:
    assert observed(*[ratio] * OBSERVATIONS_MAX).disagree("m") is disagree


def test_a_few_slow_jobs_are_no_disagreement() -> None:
    assert not observed(*[9.0] * (OBSERVATIONS_MIN - 1)).disagree("m")
    assert not observed(*[9.0, 1.0, 1.0] * 6).disagree("m")


def test_reading_and_writing_are_judged_apart() -> None:
    observations = observed(*[9.0] * 8)
    for _ in range(8):
        observations.note("m", "reading", seen_s=9.0, expected_s=1.0)
    assert not observations.disagree("m"), "eight of each are too few"


def test_what_was_long_ago_is_forgotten() -> None:
    assert not observed(*[9.0] * 50, *[1.0] * OBSERVATIONS_MAX).disagree("m")
    observations = observed(*[9.0] * OBSERVATIONS_MAX)
    assert not observations.disagree("other")
    observations.forget("m")
    assert not observations.disagree("m")


def test_times_of_nothing_are_no_observation() -> None:
    observations = SpeedObservations()
    for _ in range(OBSERVATIONS_MAX):
        observations.note("m", "writing", seen_s=0.0, expected_s=1.0)
        observations.note("m", "writing", seen_s=1.0, expected_s=0.0)
    assert not observations.disagree("m")


def test_after_an_interlude_every_figure_is_checked() -> None:
    schedule = MeasurementSchedule()
    assert not is_due(schedule, 0.0)
    schedule.note_interlude(10.0)
    assert not is_due(schedule, 9.0)
    assert is_due(schedule, 10.0)
