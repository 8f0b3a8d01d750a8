"""A podman of its own for tests: an engine's service with its storage in a folder, as root, gone with its block.

Needs the packages that `.ci/run` installs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

READY_S = 30.0
_CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""
"""runc, since crun does not start on hybrid cgroups; ulimits that also a machine without CAP_SYS_RESOURCE has."""


def why_not() -> str | None:
    """What this machine lacks; None when containers can be run here."""
    if os.geteuid() != 0:
        return "only root can run containers with limits on every machine"
    missing = [name for name in ("podman", "runc", "nft", "iptables") if shutil.which(name) is None]
    return f"{', '.join(missing)} not found (see .ci/run)" if missing else None


@dataclass
class PodmanService:
    """A running one, which a test may kill and start again: containers outlive it."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "podman.sock"

    @property
    def words(self) -> list[str | Path]:
        folder = self.folder
        return [
            "podman",
            "--root",
            folder / "root",
            "--runroot",
            folder / "run",
            "--network-config-dir",
            folder / "net",
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}

    def start(self) -> None:
        (self.folder / "containers.conf").write_text(_CONFIGURATION)
        self.socket.unlink(missing_ok=True)
        log = self.folder / "podman.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.words, "system", "service", "--time=0", f"unix://{self.socket}"],
                env=self.environment,
                cwd=self.folder,  # a container that runs out of memory leaves a file where its engine was started
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _wait_for(self.socket, self.process, log)

    def kill(self) -> None:
        """SIGKILL. Its socket stays behind, as of any program that is killed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def end(self) -> None:
        """What it made is removed: containers, bridges and mounts."""
        if self.process is not None:
            _end(self.process)
        for rest in (["rm", "--all", "--force", "--volumes", "--time", "0"], ["network", "prune", "--force"]):
            subprocess.run([*self.words, *rest], env=self.environment, capture_output=True, check=False, timeout=60)
        subprocess.run(["umount", self.folder / "root" / "overlay"], capture_output=True, check=False)
        _kill_all_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_podman(folder: Path) -> Iterator[PodmanService]:
    service = PodmanService(folder)
    try:
        service.start()
        yield service
    finally:
        service.end()


@contextmanager
def podman_service(folder: Path) -> Iterator[Path]:
    """Its socket."""
    with running_podman(folder) as service:
        yield service.socket


def _wait_for(socket: Path, service: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + READY_S
    while not socket.exists():
        assert service.poll() is None, log.read_text()
        assert time.monotonic() < until_s, f"podman does not listen: {log.read_text()}"
        time.sleep(0.02)


def _end(service: subprocess.Popen[bytes]) -> None:
    service.send_signal(signal.SIGTERM)
    try:
        service.wait(10)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait(10)


def _kill_all_of(folder: Path) -> None:
    """podman keeps a process of each command for five minutes."""
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith(f"{folder}/") for word in process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.kill()
