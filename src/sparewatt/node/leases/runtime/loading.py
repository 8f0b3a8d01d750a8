"""Opens this machine's container runtime, where the extra `leases` is installed: its driver is imported here alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from sparewatt.core.clock import Clock
from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime.model import RuntimeAbility, RuntimeTrouble
from sparewatt.node.leases.runtime.runtime import LeaseRuntime

DRIVER = "aiodocker"
NO_DRIVER = RuntimeAbility(
    troubles=(RuntimeTrouble("the driver for containers is not installed", "pip install 'sparewatt[leases]'"),)
)


def engine_trouble(socket: Path | None = None) -> RuntimeTrouble | None:
    """What keeps leases from running here, as far as it shows without a container; None if an engine is there."""
    if importlib.util.find_spec(DRIVER) is None:
        return NO_DRIVER.troubles[0]
    from sparewatt.node.leases.runtime.engine import EngineMissing, find_socket  # noqa: PLC0415 (an extra of its own)

    try:
        find_socket(socket)
    except EngineMissing as error:
        return RuntimeTrouble(str(error), error.remedy)
    return None


def load_runtime(
    *, socket: Path | None, state_dir: Path | None, gpu_count: int, clock: Clock, rng: Rng
) -> LeaseRuntime | None:
    """None if the driver is not installed: everything else of a node works without. Nothing is dialled yet."""
    if importlib.util.find_spec(DRIVER) is None:
        return None
    from sparewatt.node.leases.runtime.docker_runtime import DockerRuntime  # noqa: PLC0415 (an extra of its own)

    return DockerRuntime(clock=clock, rng=rng, socket=socket, state_dir=state_dir, gpu_count=gpu_count)
