"""The validators of a local network: processes of low priority, each with keys, stake and a URL of its own.

They start behind everything else: when the chain is up and the local nodes are providers, so that the first snapshot is
not empty. Each stakes test money by itself and keeps its port, because its URL stands on the chain.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.errors import StartupError
from sparewatt.localnet.chain import LOCAL_DEPTH
from sparewatt.machine.backoff import Notify
from sparewatt.machine.children import ChildSpec, Supervisor
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.machine.spawn import free_port
from sparewatt.node.leases.runtime.loading import engine_trouble

RENT = "lease create --image docker.io/library/nginx:1.27 --gpus 0 --dry-run"
STAKE_USD = "1000"
READY_S = 60.0
"""From its start to a followed chain: a second or two, more on a busy machine."""
STOP_S = 3.0
PORT_FILE, READY_FILE = "port", "ready"


@dataclass(frozen=True, slots=True)
class LocalValidator:
    name: str
    data_dir: Path
    port: int


def local_validators(data: Path, count: int) -> list[LocalValidator]:
    """Those of a data directory keep their ports, unless another program has taken one."""
    folders = [data / "validators" / f"validator-{number}" for number in range(1, count + 1)]
    return [LocalValidator(folder.name, folder, _port_of(folder)) for folder in folders]


def _port_of(folder: Path) -> int:
    make_private_dir(folder)
    file = folder / PORT_FILE
    try:
        port = int(file.read_text())
    except (OSError, ValueError):
        port = 0
    if not _is_free(port):
        port = free_port()
        write_private(file, str(port).encode())
    return port


def _is_free(port: int) -> bool:
    if not 0 < port < 1 << 16:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def validator_spec(validator: LocalValidator, *, chain_url: str, chain_folder: Path, logs: Path) -> ChildSpec:
    ready_file = validator.data_dir / READY_FILE
    ready_file.unlink(missing_ok=True)
    return ChildSpec(
        name=validator.name,
        argv=(
            *(sys.executable, "-m", "sparewatt", "validator", "run", "--yield-to-others"),
            f"--data={validator.data_dir}",
            f"--chain-url={chain_url}",
            f"--contracts={chain_folder / 'contracts.json'}",
            f"--port={validator.port}",
            f"--join-stake={STAKE_USD}",
            "--retire-unusable-key",
            f"--depth={LOCAL_DEPTH}",
            f"--ready-file={ready_file}",
        ),
        log_path=logs / f"{validator.name}.log",
        is_ready=lambda: asyncio.to_thread(ready_file.exists),
        ready_timeout_s=READY_S,
        drain_s=STOP_S,
        needs=frozenset(),
    )


async def start_validators(
    specs: Sequence[ChildSpec], children: Supervisor, *, podman_socket: Path, program: str, notify: Notify
) -> None:
    """All at once. A network without them goes on: answers work, orders find no quorum.

    `program`: as the user calls it.
    """
    results = await asyncio.gather(*(children.start(spec) for spec in specs), return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, StartupError):
            raise failure
    if failures:
        notify(f"{len(failures)} of {len(specs)} validators did not start, so orders may find no quorum: {failures[0]}")
    elif specs:
        notify(f"{len(specs)} validators are up: {program} market validators\n{rent_notice(podman_socket, program)}")


def rent_notice(podman_socket: Path, program: str) -> str:
    """How to rent; or, on a machine without containers, what its nodes need before they offer leases.

    `podman_socket`: where podman listens if `up` started it.
    """
    trouble = engine_trouble(podman_socket if podman_socket.exists() else None)
    if trouble is None:
        return f"Rent a machine: {program} {RENT}"
    return f"The nodes offer no leases: {trouble.what}. {trouble.remedy}"
