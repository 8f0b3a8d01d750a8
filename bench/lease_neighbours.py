"""The speed of a lease beside hostile ones on the same machine, against its speed while these stand still.

Run `make bench-lease-neighbours`, as root, with podman and busybox. A lease hashes zeros with half a processor. Beside
it are three with the rest of two processors: a fork bomb that computes, a program that takes twice its memory and dies,
again and again, and one that fills its disk. They are paused and let go in turns, so that whatever else the machine
does meets both sides alike. The programs run in containers as the agent makes them.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.environment import describe
from bench.lease_match import write_table

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.docker_runtime import DockerRuntime
from sparewatt.node.leases.runtime.egress_table import NftEgressTable
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel, LeaseRuntimeError
from tests.podman import podman_service

IMAGE = "localhost/neighbours:1"
NODE = "0x00000000000000000000000000000000000000bb"
TABLE = "sparewatt_neighbours"
CALM_S = 1.0
"""After a change, before the next measurement."""
MIB_HASHED = 192
GOAL = 0.10
HOSTILE: dict[str, tuple[str, ...]] = {
    "fork bomb": (probe_image.PROGRAM, "fork", "100000", "spin", "100000000"),
    "memory": (probe_image.PROGRAM, "spin", "300", "alloc", "128"),
    "disk": (probe_image.PROGRAM, "write", f"{probe_image.DATA}/file", "100000", "spin", "100000000"),
}


def plan_of(number: int, command: tuple[str, ...]) -> ContainerPlan:
    label = LeaseLabel(f"0x{number:064x}", 1, 1, NODE)
    return ContainerPlan(
        label=label, image=IMAGE, command=command, cpu_milli=500, memory_mib=64, disk_mib=256, egress=False
    )


async def hashed_s(runtime: DockerRuntime, label: LeaseLabel) -> float:
    """How long the lease takes for the same work."""
    work = f"/busybox dd if=/dev/zero bs=1M count={MIB_HASHED} 2>/dev/null | /busybox sha256sum"
    began_s = time.perf_counter()
    session = await runtime.exec(label, ["/busybox", "sh", "-c", work], tty=False)
    try:
        while await session.read() is not None:
            pass
    finally:
        await session.close()
    return time.perf_counter() - began_s


async def measure_pairs(runtime: DockerRuntime, count: int) -> list[tuple[float, float]]:
    """Seconds beside paused neighbours, and beside hostile ones."""
    quiet = await runtime.start(plan_of(1, ("/busybox", "sleep", "100000")))
    hostile = [
        (await runtime.start(plan_of(number, command))).label for number, command in enumerate(HOSTILE.values(), 2)
    ]
    pairs = []
    for _ in range(count):
        times = []
        for act in (runtime.pause, runtime.unpause):
            for label in hostile:
                with suppress(LeaseRuntimeError):  # it has just died, or is paused for its disk
                    await act(label)
            await asyncio.sleep(CALM_S)
            times.append(await hashed_s(runtime, quiet.label))
        pairs.append((times[0], times[1]))
    for label in (quiet.label, *hostile):
        await runtime.remove(label)
    return pairs


async def run(socket: Path, count: int) -> list[tuple[float, float]]:
    runtime = DockerRuntime(clock=SystemClock(), rng=SystemRng(), socket=socket, table=NftEgressTable(table=TABLE))
    keeping = asyncio.create_task(runtime.run())
    try:
        return await measure_pairs(runtime, count)
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await runtime.close()


def measure(count: int, folder: Path) -> list[tuple[float, float]]:
    busybox, program = shutil.which("busybox"), probe_image.program_path("x86_64")
    if busybox is None:
        raise SystemExit("busybox-static is not installed")
    (folder / "e").mkdir()
    image = folder / "image.tar"
    files = {"/busybox": Path(busybox).read_bytes(), probe_image.PROGRAM: program.read_bytes()}
    image.write_bytes(probe_image.archive_of(files, tag=IMAGE))
    try:
        with podman_service(folder / "e") as socket:
            load = ["podman", "--remote", "--url", f"unix://{socket}", "load", "--input", str(image)]
            subprocess.run(load, capture_output=True, check=True, timeout=60)
            return asyncio.run(run(socket, count))
    finally:
        subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def report(pairs: Sequence[tuple[float, float]]) -> str:
    slower = [beside / alone - 1 for alone, beside in pairs]
    median = statistics.median(slower)
    lines = [
        "# A lease beside hostile ones",
        "",
        f"A lease with half a processor hashes {MIB_HASHED} MiB, {len(pairs)} times beside paused neighbours and",
        f"{len(pairs)} times, in turns, beside hostile ones on the same machine, each with half a processor:",
        f"{', '.join(HOSTILE)}.",
        "",
        describe(),
        "",
        "| | median | least | most |",
        "| --- | --- | --- | --- |",
        _row("neighbours stand still", [alone for alone, _ in pairs]),
        _row("neighbours are hostile", [beside for _, beside in pairs]),
        "",
        f"Slower by {median:+.1%} at the median of the pairs ({min(slower):+.1%} to {max(slower):+.1%}); the goal is",
        f"{GOAL:.0%}: {'kept' if median <= GOAL else '**lost**'}.",
        "",
        "Command: `make bench-lease-neighbours`.",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, times: Sequence[float]) -> str:
    return f"| {name} | {statistics.median(times):.2f} s | {min(times):.2f} s | {max(times):.2f} s |"


if __name__ == "__main__":
    write_table(__doc__, lambda count, folder: report(measure(count, folder)))
