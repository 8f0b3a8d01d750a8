"""The container engine of this machine, for a command: one that listens, that of a network on this machine, or podman's
own service, started for as long as the command runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparewatt.cli.context import last_started_network
from sparewatt.cli.errors import CliError
from sparewatt.localnet.podman import READY_S, SOCKET_NAME, podman_spec
from sparewatt.node.leases.runtime.loading import engine_trouble

POLL_S = 0.05
STOP_S = 10.0


@contextmanager
def engine_socket() -> Iterator[Path | None]:
    """None: where engines usually listen. Raises CliError if there is none."""
    trouble = engine_trouble()
    if trouble is None:
        yield None
        return
    last = last_started_network()
    own = last[0].parent / SOCKET_NAME if last is not None else None
    if own is not None and engine_trouble(own) is None:
        yield own
        return
    with tempfile.TemporaryDirectory(prefix="sparewatt-engine-") as folder:
        spec = podman_spec(Path(folder)) if "DOCKER_HOST" not in os.environ else None
        if spec is None:
            raise CliError(f"No container engine can be used: {trouble.what}.", next_step=trouble.remedy)
        with _running(spec.argv, {**os.environ, **spec.env}, Path(folder)) as socket:
            yield socket


@contextmanager
def _running(argv: tuple[str, ...], env: dict[str, str], folder: Path) -> Iterator[Path]:
    """podman's service on a socket in the folder. Raises CliError if it does not come up."""
    socket = folder / SOCKET_NAME
    nowhere = subprocess.DEVNULL
    service = subprocess.Popen(argv, env=env, cwd=folder, stdout=nowhere, stderr=nowhere)  # noqa: S603 (podman)
    try:
        until_s = time.monotonic() + READY_S
        while not socket.exists():
            if service.poll() is not None or time.monotonic() > until_s:
                raise CliError("podman is installed, but its service does not start.", next_step="See: podman info")
            time.sleep(POLL_S)
        yield socket
    finally:
        service.terminate()
        with suppress(subprocess.TimeoutExpired):
            service.wait(STOP_S)
        if service.poll() is None:
            service.kill()
            service.wait(STOP_S)
