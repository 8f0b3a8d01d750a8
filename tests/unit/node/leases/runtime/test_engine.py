from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.node.leases.runtime.engine import (
    ContainerEngine,
    EngineMissing,
    find_socket,
    read_facts,
    socket_places,
    within,
)
from sparewatt.node.leases.runtime.model import EngineUnavailable


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "e.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        yield path


def nothing(_name: str) -> str | None:
    return None


def test_the_owners_choice_goes_before_docker_host_and_that_before_the_usual_places(
    listening: Path, tmp_path: Path
) -> None:
    other = tmp_path / "none.sock"
    assert find_socket(listening, environ={"DOCKER_HOST": f"unix://{other}"}) == listening
    assert find_socket(None, environ={"DOCKER_HOST": f"unix://{listening}"}, places=[other]) == listening
    assert find_socket(None, environ={}, places=[other, listening]) == listening
    with pytest.raises(EngineMissing, match="no socket at"):
        find_socket(other, environ={})


def test_an_engine_on_another_machine_is_refused(listening: Path) -> None:
    with pytest.raises(EngineMissing, match="no socket of this machine") as refused:
        find_socket(None, environ={"DOCKER_HOST": "tcp://10.0.0.1:2375"}, places=[listening])
    assert "--container-socket" in refused.value.remedy


def test_a_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineMissing, match="neither Docker nor podman"):
        find_socket(None, environ={}, places=[tmp_path / "file"], which=nothing)


def test_without_an_engine_the_remedy_is_what_to_install() -> None:
    with pytest.raises(EngineMissing, match="neither Docker nor podman") as missing:
        find_socket(None, environ={}, places=[], which=nothing)
    assert "apt-get install --no-install-recommends podman runc" in missing.value.remedy


@pytest.mark.parametrize(("installed", "remedy"), [("dockerd", "now docker"), ("podman", "podman.socket")])
def test_an_engine_that_does_not_listen_is_to_be_started(installed: str, remedy: str) -> None:
    with pytest.raises(EngineMissing) as missing:
        find_socket(None, environ={}, places=[], which=lambda name, /: "/x" if name == installed else None)
    assert remedy in missing.value.remedy


def test_a_socket_of_others_is_told(listening: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparewatt.node.leases.runtime.engine.os.access", lambda *_: False)
    with pytest.raises(EngineMissing, match="may not use") as missing:
        find_socket(None, environ={}, places=[listening])
    assert "usermod -aG docker" in missing.value.remedy


def test_a_user_has_places_of_its_own() -> None:
    assert Path("/run/user/7/podman/podman.sock") in socket_places({"XDG_RUNTIME_DIR": "/run/user/7"})
    assert [str(path) for path in socket_places({})] == ["/var/run/docker.sock", "/run/podman/podman.sock"]


def test_podman_is_told_from_docker_and_its_limits_from_what_it_says() -> None:
    podman = read_facts(
        {"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}]},
        {"Rootless": True, "CgroupVersion": "1", "DefaultRuntime": "crun", "DockerRootDir": "/d"},
    )
    assert (podman.is_podman, podman.is_rootless, podman.cgroup_version) == (True, True, 1)
    assert (str(podman), podman.runtime, podman.data_root) == ("podman 4.3.1", "crun", "/d")
    docker = read_facts(
        {"Version": "29.0", "Components": [{"Name": "Engine"}]},
        {"SecurityOptions": ["name=rootless"], "CgroupVersion": "2", "Runtimes": {"nvidia": {}}},
    )
    assert (docker.is_podman, docker.is_rootless, docker.cgroup_version) == (False, True, 2)
    assert docker.has_nvidia_runtime
    assert read_facts({}, {}).runtime == "runc"


async def test_an_engine_that_is_gone_or_silent_is_unavailable_and_says_nothing_of_containers(
    tmp_path: Path, listening: Path
) -> None:
    gone = ContainerEngine(tmp_path / "gone.sock")
    with pytest.raises(EngineUnavailable):
        await gone.facts()
    await gone.close()
    with pytest.raises(EngineUnavailable, match="in time"):
        async with within(0):
            await asyncio.sleep(1)
