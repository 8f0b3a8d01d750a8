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


@contextmanager
def podman_service(folder: Path) -> Iterator[Path]:
    """Its socket. What it made is removed at the end: containers, bridges and mounts."""
    configuration, socket, log = folder / "containers.conf", folder / "podman.sock", folder / "podman.log"
    configuration.write_text(_CONFIGURATION)
    words: list[str | Path] = [
        "podman",
        "--root",
        folder / "root",
        "--runroot",
        folder / "run",
        "--network-config-dir",
        folder / "net",
    ]
    environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}
    with log.open("wb") as output:
        service = subprocess.Popen(
            [*words, "system", "service", "--time=0", f"unix://{socket}"],
            env=environment,
            cwd=folder,  # a container that runs out of memory leaves a file where its engine was started
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(socket, service, log)
        yield socket
    finally:
        _end(service)
        for rest in (["rm", "--all", "--force", "--volumes", "--time", "0"], ["network", "prune", "--force"]):
            subprocess.run([*words, *rest], env=environment, capture_output=True, check=False, timeout=60)
        subprocess.run(["umount", folder / "root" / "overlay"], capture_output=True, check=False)
        _kill_all_of(folder)
        shutil.rmtree(folder, ignore_errors=True)


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
