"""A lease of a whole card in a real container, on a machine with an NVIDIA GPU, podman and a CDI file for it.

    python3 -m bench.gpu_lease --report docs/measurements/gpu-lease.md

The node's own runtime tries the machine, then starts two leases: one with the card, in which a CUDA program computes,
and one without, which must not find it. nvcc compiles the program; the image is that, and the libc that it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.hardware.detection import HostGpuProbe
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.docker_runtime import DockerRuntime
from sparewatt.node.leases.runtime.engine import ContainerEngine
from sparewatt.node.leases.runtime.model import (
    ContainerPlan,
    ContainerState,
    LeaseContainer,
    LeaseLabel,
    RestartRule,
    RuntimeAbility,
)
from tests.podman import podman_service

PROGRAM = r"""
#include <cstdio>
__global__ void add(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] += a[i];
}
int main() {
    int cards = 0, n = 1 << 24; cudaDeviceProp card; float *a, *b, last = 0;
    cudaError_t error = cudaGetDeviceCount(&cards);
    if (error) { printf("no card: %s\n", cudaGetErrorString(error)); return 3; }
    cudaGetDeviceProperties(&card, 0);
    cudaMallocManaged(&a, n * sizeof *a); cudaMallocManaged(&b, n * sizeof *b);
    for (int i = 0; i < n; i++) { a[i] = 1; b[i] = i & 1; }
    add<<<(n + 255) / 256, 256>>>(a, b, n);
    error = cudaDeviceSynchronize(); last = b[n - 1];
    printf("%d card, %s, %d x 1 + 1 = %g, %s\n", cards, card.name, n, last, cudaGetErrorString(error));
    return error || last != 2;
}
"""
LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
DRIVER_NEEDS = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")
"""Of libc: libcuda comes into the container by CDI, and is linked with these."""
TAG = "localhost/sparewatt-cuda-example:1"
MEMORY_MIB, DEADLINE_S, POLL_S = 8_192, 60.0, 0.05


@dataclass(frozen=True, slots=True)
class LeaseRun:
    lines: tuple[str, ...]
    exit_code: int | None
    running_s: float
    """From the call to a container that runs."""


def compiled(folder: Path) -> dict[str, bytes]:
    """The program and what it is linked with, by their paths in the image."""
    source, program = folder / "add.cu", folder / "add"
    source.write_text(PROGRAM)
    subprocess.run(["nvcc", "-cudart", "static", "-o", program, source], check=True)
    linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    paths = [Path(path) for path in LIBRARY.findall(linked)]
    folders = {path.parent for path in paths if path.name == "libc.so.6"}
    paths += [folder / name for folder in folders for name in DRIVER_NEEDS if (folder / name).exists()]
    return {"/add": program.read_bytes(), **{str(path): path.read_bytes() for path in paths}}


async def ended(runtime: DockerRuntime, label: LeaseLabel) -> LeaseContainer:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            seen = await runtime.container(label)
            if seen is not None and seen.state is ContainerState.EXITED:
                return seen
            await asyncio.sleep(POLL_S)


async def lease(runtime: DockerRuntime, number: int, *, image: str, command: tuple[str, ...], cards: int) -> LeaseRun:
    label = LeaseLabel(f"0x{number:064x}", 1, 1, "0x00000000000000000000000000000000000000aa")
    plan = ContainerPlan(
        label=label,
        image=image,
        command=command,
        cpu_milli=2_000,
        memory_mib=MEMORY_MIB,
        disk_mib=256,
        gpu_ids=tuple(str(card) for card in range(cards)),
        egress=True,
        restart=RestartRule.NEVER,
    )
    begun_s = time.monotonic()
    try:
        await runtime.start(plan)
        running_s = time.monotonic() - begun_s
        seen = await ended(runtime, label)
        text = b"".join([data async for _, data in runtime.logs(label, follow=False, tail=100)])
        return LeaseRun(tuple(text.decode(errors="replace").splitlines()), seen.exit_code, running_s)
    finally:
        await runtime.remove(label)


async def measure(socket: Path, programs: Mapping[str, bytes]) -> tuple[RuntimeAbility, dict[str, LeaseRun]]:
    gpu_count = len(HostGpuProbe().gpus())
    runtime = DockerRuntime(clock=SystemClock(), rng=SystemRng(), socket=socket, gpu_count=gpu_count)
    engine = ContainerEngine(socket)
    tending = asyncio.create_task(runtime.run())
    try:
        ability = await runtime.ability(on_progress=print)
        await engine.docker.images.import_image(probe_image.archive_of(dict(programs), tag=TAG))
        look = (probe_image.PROGRAM, "write", "/dev/nvidia0", "1")
        tag = probe_image.image_tag()
        runs = {
            "with the card, a CUDA program": await lease(runtime, 1, image=TAG, command=("/add",), cards=1),
            "with the card, its device node": await lease(runtime, 2, image=tag, command=look, cards=1),
            "without a card, the CUDA program": await lease(runtime, 3, image=TAG, command=("/add",), cards=0),
            "without a card, its device node": await lease(runtime, 4, image=tag, command=look, cards=0),
        }
        return ability, runs
    finally:
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        await engine.close()
        await runtime.close()


def page(ability: RuntimeAbility, runs: Mapping[str, LeaseRun]) -> str:
    found = f"limits {ability.limits}, egress table {ability.egress}, GPUs by {ability.gpus or 'no way'}"
    rows = [
        f"| {what} | {'; '.join(run.lines)} | {run.exit_code} | {run.running_s:.2f} s |" for what, run in runs.items()
    ]
    return "\n".join(
        [
            "# A card in a lease's container",
            "",
            f"Made by `python3 -m bench.gpu_lease`. {ability.engine}: {found}.",
            *(f"Trouble: {each.what}. {each.remedy}" for each in ability.troubles),
            "",
            "| lease | what it printed | exit | until it ran |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "`write 0 22` is the driver's answer to a program that writes to the card: it is there. `write 1 0` is a",
            "plain file that the program could make in its place: there is no card.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", type=Path, metavar="FILE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sparewatt-gpu-lease-") as name:
        folder = Path(name)
        (folder / "podman").mkdir()
        with podman_service(folder / "podman") as socket:
            text = page(*asyncio.run(measure(socket, compiled(folder))))
    print(text)
    if given.report is not None:
        given.report.write_text(text)


if __name__ == "__main__":
    main()
