"""Which models on disk are loaded to be measured."""

from __future__ import annotations

from sparewatt.node.backends.backend import BackendModel
from sparewatt.node.measurement.measurement_schedule import LOADED_MAX, may_load
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
