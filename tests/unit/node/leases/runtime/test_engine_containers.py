from __future__ import annotations

from typing import Any

import pytest

from sparewatt.node.leases.runtime.engine_containers import is_labelled, read_container
from sparewatt.node.leases.runtime.model import ContainerState, LeaseLabel
from sparewatt.node.leases.runtime.naming import labels_of

LABEL = LeaseLabel("0x1", 1, 1, "0xa")


def found(**status: Any) -> dict[str, Any]:
    usual = {"Status": "running", "StartedAt": "2026-11-18T00:57:38.351735503Z", "FinishedAt": "0001-01-01T00:00:00Z"}
    return {
        "Id": "c",
        "Config": {"Labels": labels_of(LABEL, disk_mib=1)},
        "State": usual | status,
        "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.201.0.2", "Gateway": "10.201.0.1"}}},
    }


def test_a_running_container_is_read() -> None:
    seen = read_container(found())
    assert seen is not None
    assert (seen.container_id, seen.label, seen.state) == ("c", LABEL, ContainerState.RUNNING)
    assert (seen.address, seen.host_address, seen.exit_code) == ("10.201.0.2", "10.201.0.1", None)
    assert seen.started_unix_s == pytest.approx(1_794_963_458.351735, abs=1e-5)
    assert seen.ended_unix_s is None


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("created", ContainerState.CREATED),
        ("configured", ContainerState.CREATED),
        ("paused", ContainerState.PAUSED),
        ("exited", ContainerState.EXITED),
        ("stopped", ContainerState.EXITED),
        ("dead", ContainerState.EXITED),
        ("removing", ContainerState.GONE),
    ],
)
def test_the_words_of_both_engines_are_states(word: str, state: ContainerState) -> None:
    seen = read_container(found(Status=word))
    assert seen is not None
    assert seen.state is state


def test_an_end_has_its_time_its_code_and_its_reason() -> None:
    seen = read_container(found(Status="exited", ExitCode=137, OOMKilled=True, FinishedAt="2026-11-18T01:57:38+01:00"))
    assert seen is not None
    assert (seen.exit_code, seen.is_out_of_memory) == (137, True)
    assert seen.ended_unix_s == 1_794_963_458.0


def test_what_is_not_ours_or_says_nothing_is_not_read() -> None:
    assert read_container({}) is None
    assert read_container({"Config": {"Labels": {"a": "b"}}}) is None
    assert read_container(found(StartedAt="soon")).started_unix_s is None  # type: ignore[union-attr]
    assert not is_labelled(found(), LeaseLabel("0x1", 2, 1, "0xa"))
    assert is_labelled(found(), LeaseLabel("0x1", 1, 9, "0xa"))
