"""What is made of what was tried. The trying itself is in tests/contract, with real containers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.leases.runtime.ability import (
    AbilityProof,
    broken_limits,
    gpu_way,
    missing_cards,
    start_remedy,
    table_remedy,
)
from sparewatt.node.leases.runtime.egress_table import NftEgressTable
from sparewatt.node.leases.runtime.engine import ContainerEngine, EngineFacts, EngineMissing
from sparewatt.node.leases.runtime.model import EngineUnavailable, RuntimeAbility
from sparewatt.node.leases.runtime.runtime import OnProgress

HELD = ["spin 60000 500000", "find nr_throttled -1", "find nr_throttled 5", "fork 15"]
PODMAN = EngineFacts("podman", "4.3.1", False, 1, "runc", "/d", False)
DOCKER = EngineFacts("docker", "27.0", False, 2, "runc", "/d", True)


@pytest.mark.parametrize(
    ("lines", "broken"),
    [
        (HELD, set()),
        ([*HELD, "alloc 128"], {"memory"}),
        ([*HELD[:3], "fork 64"], {"processes"}),
        (["spin 490000 500000", *HELD[2:]], {"processor"}),
        (["spin 10000 500000", "find nr_throttled 0", "fork 15"], {"processor?"}),
        (["spin 10000 500000", "find nr_throttled -1", "fork 15"], set()),
        ([], {"processes"}),
    ],
    ids=["all hold", "memory", "pids", "processor", "too busy to say", "no statistics", "it did not run"],
)
def test_a_limit_that_did_not_hold_is_named(lines: list[str], broken: set[str]) -> None:
    assert broken_limits(lines) == broken


class _FakeEngine:
    socket = Path("/run/e.sock")

    def __init__(self, facts: EngineFacts | Exception) -> None:
        self._facts = facts

    async def facts(self) -> EngineFacts:
        if isinstance(self._facts, Exception):
            raise self._facts
        return self._facts


async def prove(found: EngineFacts | Exception, *, on_progress: OnProgress = print) -> RuntimeAbility:
    def opened() -> ContainerEngine:
        if isinstance(found, EngineMissing):
            raise found
        return _FakeEngine(found)  # type: ignore[return-value]

    open_engine: Callable[[], ContainerEngine] = opened
    proof = AbilityProof(
        open_engine=open_engine, table=NftEgressTable(), rng=seeded(1), clock=SystemClock(), gpu_count=0
    )
    return await proof.run(on_progress)


async def test_rootless_podman_on_cgroup_v1_offers_nothing() -> None:
    rootless = EngineFacts("podman", "4.3.1", True, 1, "crun", "/d", False)
    found = await prove(rootless)
    assert (found.limits, found.egress, found.engine) == (False, False, "podman 4.3.1")
    (trouble,) = found.troubles
    assert "ignores limits on cgroup v1" in trouble.what
    assert "as root" in trouble.remedy


async def test_no_engine_is_an_ability_too_and_names_the_remedy() -> None:
    found = await prove(EngineMissing("neither is installed", remedy="install one"))
    assert (found.limits, found.engine) == (False, "")
    assert [(each.what, each.remedy) for each in found.troubles] == [("neither is installed", "install one")]


async def test_an_engine_that_does_not_answer_is_told() -> None:
    found = await prove(EngineUnavailable("no answer"))
    assert "sparewatt node doctor" in found.troubles[0].remedy


async def test_a_platform_without_the_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.node.leases.runtime.ability.probe_image.has_program", lambda: False)
    found = await prove(PODMAN)
    assert not found.limits
    assert "x86_64 and aarch64" in found.troubles[0].remedy


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("OCI runtime error: crun: cgroups in hybrid mode not supported", 'runtime="runc"'),
        ("runc: error setting rlimit type 6: operation not permitted", "default_ulimits"),
        ("netavark: iptables: no such file", "netavark"),
        ("something else", "engine's own log"),
    ],
)
def test_what_keeps_containers_from_starting_has_its_remedy(reason: str, word: str) -> None:
    assert word in start_remedy(reason)


@pytest.mark.parametrize(
    ("reason", "word"),
    [("nft is not installed", "install nftables"), ("Operation not permitted", "CAP_NET_ADMIN"), ("else", "nf_tables")],
)
def test_what_keeps_the_table_out_has_its_remedy(reason: str, word: str) -> None:
    assert word in table_remedy(reason)


def test_cards_are_given_by_docker_where_it_knows_nvidias_runtime_and_by_podman_where_cdi_names_them(
    tmp_path: Path,
) -> None:
    assert gpu_way(DOCKER) == "device_requests"
    assert gpu_way(EngineFacts("docker", "27.0", False, 2, "runc", "/d", False)) is None
    assert gpu_way(PODMAN, cdi_folders=(tmp_path, tmp_path / "none")) is None
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert gpu_way(PODMAN, cdi_folders=(tmp_path,)) == "cdi"


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (["write 0 22", "write 0 22"], []),
        (["write 0 22", "write 1 0"], ["1"]),
        (["write 0 1", "write 0 13"], ["0", "1"]),
        (["write 0 22"], ["1"]),
        ([], ["0", "1"]),
    ],
    ids=["both are there", "a plain file in its place", "not permitted", "it ended early", "it did not run"],
)
def test_a_card_that_a_container_does_not_get_is_named(lines: list[str], missing: list[str]) -> None:
    """As an H200 answers: a driver that is written to says EINVAL."""
    assert missing_cards(lines, ["0", "1"]) == missing
