"""A run of steps: what fails is reported, what needs it is left out, the rest goes on, and all of it is on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.gpu_steps import GpuRun, StepFailed


def broken() -> None:
    raise StepFailed("no such card")


def run_in(folder: Path, *, limit_s: float = 60.0) -> GpuRun:
    return GpuRun(folder, limit_s=limit_s, json_file=folder / "found.json")


def test_a_step_keeps_what_it_returns(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    assert run.step("doctor", lambda: {"gpus": []}) == {"gpus": []}
    assert json.loads((tmp_path / "found.json").read_text())["doctor"] == {"gpus": []}
    assert run.found["failed"] == {}


def test_a_failed_step_is_reported_and_only_who_needs_it_is_left_out(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    assert run.step("server", broken) is None
    assert run.step("meter", lambda: 1, needs=("server",)) is None
    assert run.step("gateway", lambda: "url") == "url"
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["failed"] == {"server": "no such card", "meter": "left out, as it needs: server"}
    assert written["gateway"] == "url"


def test_an_unexpected_error_is_kept_with_its_place(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.step("meter", lambda: int("slots"))
    assert "ValueError" in run.found["failed"]["meter"]
    assert "test_gpu_steps" in run.found["failed"]["meter"]


def test_no_step_begins_after_the_limit(tmp_path: Path) -> None:
    run = run_in(tmp_path, limit_s=-1.0)
    assert run.step("doctor", lambda: 1) is None
    assert run.found["failed"] == {"doctor": "left out: no time"}


def test_a_process_that_ends_is_not_waited_for_and_its_log_is_shown(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    with (
        run.process("server", "no_such_module_here") as process,
        pytest.raises(StepFailed, match="no_such_module_here"),
    ):
        run.wait("the server", lambda: None, process, ceiling_s=60.0)


def test_what_is_waited_for_is_returned(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    with run.process("server", "http.server", "0") as process:
        assert run.wait("the server", lambda: "ready", process, ceiling_s=60.0) == "ready"
    assert process.poll() is not None
