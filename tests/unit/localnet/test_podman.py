"""When `up` starts podman's service, and when it leaves that to the machine."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path

import pytest

from sparewatt.localnet.podman import SOCKET_CHARS_MAX, SOCKET_NAME, podman_spec

PROGRAMS = {"podman": "/usr/bin/podman", "runc": "/usr/sbin/runc"}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine listens on this machine."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")


@pytest.mark.usefixtures("alone")
def test_an_installed_podman_is_started_with_runc_on_the_machines_own_storage(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).touch()  # of a network that was killed
    spec = podman_spec(tmp_path, is_root=True, which=PROGRAMS.get)
    assert spec is not None
    assert spec.argv == ("/usr/bin/podman", "system", "service", "--time=0", f"unix://{tmp_path / SOCKET_NAME}")
    said = tomllib.loads(Path(spec.env["CONTAINERS_CONF"]).read_text())
    assert said["engine"]["runtime"] == "/usr/sbin/runc"
    assert [each.split("=")[0] for each in said["containers"]["default_ulimits"]] == ["nofile", "nproc"]
    assert not (tmp_path / SOCKET_NAME).exists(), "it would pass for a service that is ready"


@pytest.mark.usefixtures("alone")
def test_without_podman_or_root_or_room_for_a_socket_none_is_started(tmp_path: Path) -> None:
    assert podman_spec(tmp_path, is_root=True, which=dict[str, str]().get) is None
    assert podman_spec(tmp_path, is_root=False, which=PROGRAMS.get) is None
    assert podman_spec(tmp_path / ("x" * SOCKET_CHARS_MAX), is_root=True, which=PROGRAMS.get) is None


def test_an_engine_that_listens_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'engine.sock'}")
        assert podman_spec(tmp_path, is_root=True, which=PROGRAMS.get) is None
