"""A child that comes up without its parent ends at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sparewatt.machine.lifeline import EXIT_ORPHANED, PARENT_PID_ENV, death_signal_preexec, die_with_parent

CODE = "import os; from sparewatt.machine.lifeline import die_with_parent as d; d(); print(os.environ.get('{}'))"


def run_child(parent_pid: int) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, PARENT_PID_ENV: str(parent_pid)}
    argv = [sys.executable, "-c", CODE.format(PARENT_PID_ENV)]
    return subprocess.run(argv, env=env, check=False, capture_output=True, text=True, timeout=30)


def test_a_child_of_the_named_parent_goes_on_and_hides_the_pid_from_its_own_children() -> None:
    child = run_child(os.getpid())
    assert (child.returncode, child.stdout) == (0, "None\n")


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    child = run_child(os.getpid() + 1)
    assert (child.returncode, child.stdout) == (EXIT_ORPHANED, "")


def test_a_process_that_a_person_started_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PARENT_PID_ENV, raising=False)
    die_with_parent()


def test_systems_without_death_signals_get_no_preexec(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    monkeypatch.setattr(sys, "platform", "darwin")
    assert death_signal_preexec(signal.SIGINT) is None
