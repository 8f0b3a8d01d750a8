from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparewatt.core.rng import seeded
from sparewatt.machine.backoff import DELAY_S_MAX, FIRST_DELAY_S
from sparewatt.node.leases.runtime.model import ContainerState, LeaseContainer, LeaseLabel, RestartRule
from sparewatt.node.leases.runtime.restarts import FILE, Restarts

ENDED = LeaseContainer(
    container_id="c",
    label=LeaseLabel("0x1", 1, 1, "n"),
    state=ContainerState.EXITED,
    started_unix_s=1_000.0,
    ended_unix_s=1_001.0,
    exit_code=1,
)


def kept(rule: RestartRule = RestartRule.ALWAYS, folder: Path | None = None) -> Restarts:
    restarts = Restarts(rng=seeded(1), folder=folder)
    restarts.keep("a", rule)
    return restarts


def delay_s(restarts: Restarts, seen: LeaseContainer) -> float:
    """In tenths of a second."""
    assert not restarts.is_due("a", seen, now_s=0.0)
    return next(tenth / 10 for tenth in range(1, 1_000) if restarts.is_due("a", seen, now_s=tenth / 10))


def test_each_restart_waits_longer_than_the_last_up_to_a_bound() -> None:
    restarts = kept()
    delays = []
    for _ in range(12):
        delays.append(delay_s(restarts, ENDED))
        restarts.restarted("a")
    assert delays[0] <= FIRST_DELAY_S
    assert delays[-1] <= DELAY_S_MAX
    assert delays[-1] >= DELAY_S_MAX / 2
    assert restarts.count("a") == 12


def test_a_program_that_ran_for_long_is_started_soon() -> None:
    restarts = kept()
    for _ in range(8):
        delay_s(restarts, ENDED)
        restarts.restarted("a")
    assert delay_s(restarts, replace(ENDED, ended_unix_s=2_000.0)) <= FIRST_DELAY_S


@pytest.mark.parametrize(
    ("rule", "code", "expected"),
    [
        (RestartRule.ALWAYS, 0, True),
        (RestartRule.ALWAYS, 1, True),
        (RestartRule.ON_FAILURE, 0, False),
        (RestartRule.ON_FAILURE, 137, True),
        (RestartRule.NEVER, 1, False),
    ],
)
def test_a_rule_says_what_is_started_again(rule: RestartRule, code: int, *, expected: bool) -> None:
    restarts, seen = kept(rule), replace(ENDED, exit_code=code)
    restarts.is_due("a", seen, now_s=0.0)
    assert restarts.is_due("a", seen, now_s=1_000.0) is expected
    assert restarts.may_restart("a", seen) is expected


@pytest.mark.parametrize("state", [ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.CREATED])
def test_what_has_not_ended_is_left_alone(state: ContainerState) -> None:
    restarts, seen = kept(), replace(ENDED, state=state)
    restarts.is_due("a", seen, now_s=0.0)
    assert not restarts.is_due("a", seen, now_s=1_000.0)


def test_what_was_stopped_is_not_started_again_and_keeps_its_count() -> None:
    restarts = kept()
    restarts.restarted("a")
    restarts.let_go("a")
    restarts.is_due("a", ENDED, now_s=0.0)
    assert not restarts.is_due("a", ENDED, now_s=1_000.0)
    assert (restarts.names(), restarts.count("a")) == ((), 1)


def test_counts_outlive_the_process_and_end_with_the_container(tmp_path: Path) -> None:
    kept(folder=tmp_path).restarted("a")
    anew = Restarts(rng=seeded(1), folder=tmp_path)
    assert anew.count("a") == 1
    anew.forget("a")
    assert Restarts(rng=seeded(1), folder=tmp_path).count("a") == 0


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', "\xff"])
def test_a_broken_file_counts_from_zero(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    assert Restarts(rng=seeded(1), folder=tmp_path).count("a") == 0
