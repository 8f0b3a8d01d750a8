"""The validators of `up`: they keep their ports, start together, and a network without them goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparewatt.core.errors import StartupError
from sparewatt.localnet.validators import PORT_FILE, local_validators, start_validators, validator_spec
from sparewatt.machine.children import ChildSpec


class FakeSupervisor:
    def __init__(self, *failing: str, error: BaseException | None = None) -> None:
        self.failing = failing
        self.error = error or StartupError("the port is taken")
        self.started: list[str] = []

    async def start(self, spec: ChildSpec) -> None:
        if spec.name in self.failing:
            raise self.error
        self.started.append(spec.name)


def specs(data: Path, count: int = 4) -> list[ChildSpec]:
    return [
        validator_spec(each, chain_url="http://127.0.0.1:1", chain_folder=data / "chain", logs=data / "logs")
        for each in local_validators(data, count)
    ]


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A container engine that listens on this machine."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "engine.sock"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'engine.sock'}")
        yield


async def said(data: Path, supervisor: FakeSupervisor, count: int = 4) -> list[str]:
    lines: list[str] = []
    started = specs(data, count)
    socket_path = data / "podman.sock"
    await start_validators(started, supervisor, podman_socket=socket_path, program="bin/sparewatt", notify=lines.append)  # type: ignore[arg-type]
    return lines


async def test_a_machine_without_an_engine_says_what_its_nodes_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    (line,) = await said(tmp_path, FakeSupervisor())
    assert "The nodes offer no leases: there is no socket at /nowhere/engine.sock." in line


def test_ports_are_kept(tmp_path: Path) -> None:
    first = local_validators(tmp_path, 4)
    assert len({each.port for each in first}) == 4
    assert local_validators(tmp_path, 4) == first


def test_a_taken_port_is_replaced(tmp_path: Path) -> None:
    (first,) = local_validators(tmp_path, 1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.port))
        other.listen()
        (second,) = local_validators(tmp_path, 1)
    assert second.port != first.port
    assert local_validators(tmp_path, 1) == [second]


@pytest.mark.parametrize("content", ["", "no port", "0", "-1", "70000"])
def test_a_broken_port_file_is_replaced(tmp_path: Path, content: str) -> None:
    (validator,) = local_validators(tmp_path, 1)
    (validator.data_dir / PORT_FILE).write_text(content)
    (again,) = local_validators(tmp_path, 1)
    assert 0 < again.port < 1 << 16
    assert (again.data_dir / PORT_FILE).read_text() == str(again.port)


async def test_readiness_is_of_this_start(tmp_path: Path) -> None:
    (validator,) = local_validators(tmp_path, 1)
    (validator.data_dir / "ready").touch()
    (spec,) = specs(tmp_path, 1)
    assert spec.is_ready is not None
    assert not await spec.is_ready()
    (validator.data_dir / "ready").touch()
    assert await spec.is_ready()


async def test_all_start(tmp_path: Path) -> None:
    supervisor = FakeSupervisor()
    (text,) = await said(tmp_path, supervisor)
    assert text.splitlines() == [
        "4 validators are up: bin/sparewatt market validators",
        "Rent a machine: bin/sparewatt lease create --image docker.io/library/nginx:1.27 --gpus 0 --dry-run",
    ]
    assert sorted(supervisor.started) == [f"validator-{number}" for number in (1, 2, 3, 4)]


async def test_one_that_fails_is_named_and_the_others_run(tmp_path: Path) -> None:
    supervisor = FakeSupervisor("validator-2")
    (line,) = await said(tmp_path, supervisor)
    assert line.startswith("1 of 4 validators did not start")
    assert "the port is taken" in line
    assert len(supervisor.started) == 3


async def test_a_mistake_of_ours_is_no_failed_start(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        await said(tmp_path, FakeSupervisor("validator-1", error=TypeError("a bug")))


async def test_without_validators_nothing_is_said(tmp_path: Path) -> None:
    assert await said(tmp_path, FakeSupervisor(), count=0) == []
