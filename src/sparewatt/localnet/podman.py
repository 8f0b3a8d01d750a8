"""A podman service for the nodes of the local network, on a machine that has podman but where no engine listens.

It works on the machine's own storage, so what `podman build` made can be leased. Containers outlive it: they belong to
their leases, and the next start finds them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

from sparewatt.machine.children import ChildSpec
from sparewatt.node.leases.runtime.loading import engine_trouble

PODMAN = "podman"
SOCKET_NAME = "podman.sock"
SOCKET_CHARS_MAX = 100
"""The kernel takes no longer path for a socket."""
READY_S = 20.0
CONFIGURATION_NAME = "containers.conf"
_LIMITS = (("nofile", resource.RLIMIT_NOFILE, 1_048_576), ("nproc", resource.RLIMIT_NPROC, 32_768))
"""The most that podman asks for itself."""
_SYSTEMD = Path("/run/systemd/system")


def podman_spec(
    data: Path, *, is_root: bool | None = None, which: Callable[[str], str | None] = shutil.which
) -> ChildSpec | None:
    """None where an engine listens already, or podman is not installed, or could keep no limits: that takes root."""
    socket = data.absolute() / SOCKET_NAME
    podman, runc = which("podman"), which("runc")
    is_root = os.geteuid() == 0 if is_root is None else is_root
    if podman is None or not is_root or len(str(socket)) > SOCKET_CHARS_MAX or engine_trouble() is None:
        return None
    configuration = data / CONFIGURATION_NAME
    configuration.write_text(_configuration(runc))
    socket.unlink(missing_ok=True)
    return ChildSpec(
        name=PODMAN,
        argv=(podman, "system", "service", "--time=0", f"unix://{socket}"),
        env={"CONTAINERS_CONF": str(configuration.absolute())},
        log_path=data / "logs" / "podman.log",
        is_ready=lambda: asyncio.to_thread(socket.exists),
        ready_timeout_s=READY_S,
        needs=frozenset(),
        cwd=data,  # a container that runs out of memory leaves a file where its engine was started
    )


def _configuration(runc: str | None) -> str:
    """Of the engine. It may not raise its own limits everywhere, so containers have those that it was started with."""
    limits = [f'"{name}={_hard(kind, most)}:{_hard(kind, most)}"' for name, kind, most in _LIMITS]
    # crun does not start where both versions of cgroups are mounted; without systemd nobody else makes cgroups.
    runtime = [f'runtime = "{runc}"'] if runc is not None else []
    managers = [] if _SYSTEMD.exists() else ['cgroup_manager = "cgroupfs"', 'events_logger = "file"']
    lines = ["[containers]", f"default_ulimits = [{', '.join(limits)}]", "[engine]", *runtime, *managers]
    return "\n".join([*lines, ""])


def _hard(kind: int, most: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)
