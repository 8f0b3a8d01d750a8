from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.node.hardware.apple import GPU_SHARE, PROFILER, SYSCTL_MEMORY, AppleProbe, chip_of
from sparewatt.node.hardware.gpu import DetectedGpu

PROFILE = {
    "SPDisplaysDataType": [
        {"_name": "Apple M3 Max", "sppci_model": "Apple M3 Max", "sppci_cores": "40", "sppci_bus": "spdisplays_builtin"}
    ]
}


def test_a_mac_shares_its_memory() -> None:
    answers: dict[tuple[str, ...], str] = {PROFILER: json.dumps(PROFILE), SYSCTL_MEMORY: "68719476736\n"}
    probe = AppleProbe(run=lambda argv: answers.get(tuple(argv), "15.1\n"), is_mac=True)
    (gpu,) = probe.gpus()
    assert gpu == DetectedGpu("apple", "Apple M3 Max (40 cores)", int(68719476736 * GPU_SHARE), "macOS 15.1")
    assert len(probe.read()) == 1


def test_on_a_machine_that_is_no_mac_nothing_is_run() -> None:
    def run(_: Any) -> str:
        raise AssertionError("nothing may be run")

    assert AppleProbe(run=run, is_mac=False).gpus() == []


@pytest.mark.parametrize("profile", ["", "{}", '{"SPDisplaysDataType": [{"sppci_model": "Intel Iris"}]}', "[1]"])
def test_a_mac_without_an_apple_chip_has_no_gpu(profile: str) -> None:
    assert chip_of(profile) is None
