"""What this machine can promise to leases, found by trying with the package's static program in real containers.

An engine that accepts a limit may still ignore it, and a table that is installed may be in the wrong place: so each is
broken on purpose here, by the same configuration that leases get. Takes a few seconds, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from aiodocker.exceptions import DockerError

from sparewatt.core.clock import Clock
from sparewatt.core.rng import Rng
from sparewatt.node.leases.runtime import probe_image
from sparewatt.node.leases.runtime.container_spec import CDI_KIND
from sparewatt.node.leases.runtime.egress_table import EgressTable, TableRefused
from sparewatt.node.leases.runtime.egress_trial import try_egress
from sparewatt.node.leases.runtime.engine import ENGINE_S, INSTALL, ContainerEngine, EngineFacts, EngineMissing, within
from sparewatt.node.leases.runtime.image_pull import find_image
from sparewatt.node.leases.runtime.model import (
    EngineUnavailable,
    GpuWay,
    LeaseRuntimeError,
    RuntimeAbility,
    RuntimeTrouble,
    StartRefused,
)
from sparewatt.node.leases.runtime.probe_container import ProbeContainer, sweep_probes
from sparewatt.node.leases.runtime.runtime import OnProgress

PROVE_S = 90.0
"""For everything. On an idle machine it takes about three seconds."""
LIMIT_MIB, LIMIT_CPU_MILLI, LIMIT_PIDS = 64, 100, 16
SPIN_MS, SPIN_SHARE_MAX = 500, 0.3
"""The program is allowed a tenth of a processor, and may be early by a period or two."""
SPINS = 3
"""On a machine so busy that the program never gets its tenth, it is tried again."""
QUOTA_MIB = 32
_DISK_FULL = [["write", str(number)] for number in (errno.ENOSPC, errno.EDQUOT)]
CPU_STATISTICS = (
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/cpu/cpu.stat",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
)
"""Of cgroup v2 and v1: how often the limit held a program back."""
_DRIVER_ANSWER = ["0", str(errno.EINVAL)]
"""Of a card's device node to a program that writes to it (seen with driver 580)."""
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
CGROUP_V2_REMEDY = "Boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or run podman as root."


@dataclass(slots=True, kw_only=True)
class AbilityProof:
    open_engine: Callable[[], ContainerEngine]
    table: EgressTable
    rng: Rng
    clock: Clock
    gpu_count: int
    """Cards that the agent sees: each is tried in a container."""
    cdi_folders: tuple[Path, ...] = CDI_FOLDERS
    _troubles: list[RuntimeTrouble] = field(init=False, default_factory=list)

    async def run(self, on_progress: OnProgress) -> RuntimeAbility:
        """Never raises for what the machine lacks: that is what it finds."""
        found = RuntimeAbility()
        try:
            async with asyncio.timeout(PROVE_S):
                engine = self.open_engine()
                facts = await engine.facts()
                found = replace(found, engine=str(facts), socket=str(engine.socket))
                found = await self._prove(engine, facts, found, on_progress)
        except EngineMissing as missing:
            self._trouble(str(missing), missing.remedy)
        except EngineUnavailable as gone:
            self._trouble(str(gone), "Start the container engine, then run: sparewatt node doctor")
        except TimeoutError:
            self._trouble("the container engine is too slow to be tried", "Try again: sparewatt node doctor")
        return replace(found, troubles=tuple(self._troubles))

    async def _prove(
        self, engine: ContainerEngine, facts: EngineFacts, found: RuntimeAbility, on_progress: OnProgress
    ) -> RuntimeAbility:
        if facts.is_rootless and facts.cgroup_version == 1:
            self._trouble(f"{facts} without root ignores limits on cgroup v1", CGROUP_V2_REMEDY)
            return found
        if not probe_image.has_program():
            self._trouble(f"leases do not run on {os.uname().machine} yet", "x86_64 and aarch64 work.")
            return found
        try:
            await sweep_probes(engine, before_unix_s=self.clock.unix_s() - 2 * PROVE_S)
            await load_probe_image(engine)
            on_progress("limits of memory, processor and processes")
            found = replace(found, limits=await self._limits_hold(engine, facts))
            on_progress("disk quota")
            found = replace(found, disk_kind=int(await self._quota_holds(engine)))
        except LeaseRuntimeError as error:
            if isinstance(error, EngineUnavailable):
                raise
            self._trouble(f"no container can be started: {error}", start_remedy(str(error)))
            return found
        on_progress("egress table")
        found = replace(found, egress=await self._table_holds(engine))
        on_progress("GPUs")
        return replace(found, gpus=await self._gpus_reach(engine, facts))

    async def _limits_hold(self, engine: ContainerEngine, facts: EngineFacts) -> bool:
        """All at once, in one container: it computes, forks, and at last takes twice its memory, of which it dies."""
        throttled = [word for path in CPU_STATISTICS for word in ("find", path, "nr_throttled")]
        tasks = [*("spin", str(SPIN_MS)), *throttled, *("fork", str(4 * LIMIT_PIDS)), *("alloc", str(2 * LIMIT_MIB))]
        broken = {"processor"}
        for _ in range(SPINS):
            lines = await self._output(engine, tasks)
            broken = broken_limits(lines)
            if "processor?" not in broken:
                break
        broken.discard("processor?")  # never held back, and never above its share either
        if broken:
            what = f"{facts} ignores limits of {', '.join(sorted(broken))}"
            self._trouble(what, CGROUP_V2_REMEDY if facts.is_rootless else "Use runc, and podman or Docker as root.")
        return not broken

    async def _output(self, engine: ContainerEngine, tasks: list[str]) -> list[str]:
        probe = ProbeContainer(engine, self.rng, memory_mib=LIMIT_MIB, cpu_milli=LIMIT_CPU_MILLI, pids_max=LIMIT_PIDS)
        async with probe.running(tasks):
            return await probe.output()

    async def _quota_holds(self, engine: ContainerEngine) -> bool:
        """Whether the file system stops a program that writes twice its share. No trouble if not: it is watched."""
        probe = ProbeContainer(engine, self.rng, memory_mib=LIMIT_MIB, disk_mib=QUOTA_MIB, has_quota=True)
        try:
            async with probe.running(["write", f"{probe_image.DATA}/file", str(2 * QUOTA_MIB)]):
                lines = await probe.output()
        except StartRefused:
            return False
        return any(line.split()[::2] in _DISK_FULL for line in lines if line.startswith("write "))

    async def _table_holds(self, engine: ContainerEngine) -> bool:
        try:
            await self.table.hold()
        except TableRefused as refused:
            self._trouble(f"no egress table: {refused}; leases get no network", table_remedy(str(refused)))
            return False
        try:
            leaks = await try_egress(engine, self.rng)
        except StartRefused as refused:
            self._trouble(f"no bridge for a lease: {refused}; leases get no network", start_remedy(str(refused)))
            return False
        if leaks:
            what = f"a lease reaches {', '.join(leaks)} in spite of the egress table; leases get no network"
            self._trouble(what, "Does another firewall rewrite addresses before ours? See docs/how-to/lend-a-gpu.md.")
        return not leaks

    async def _gpus_reach(self, engine: ContainerEngine, facts: EngineFacts) -> GpuWay | None:
        """How cards come into containers, if all of them do: a file that names them may be of another driver."""
        if self.gpu_count == 0:
            return None
        way, cards = gpu_way(facts, cdi_folders=self.cdi_folders), [str(number) for number in range(self.gpu_count)]
        if way is None:
            self._trouble(f"{facts} cannot give GPUs to containers", gpu_remedy(facts))
            return None
        probe = ProbeContainer(engine, self.rng, memory_mib=LIMIT_MIB, gpu_ids=tuple(cards))
        try:
            async with probe.running([word for card in cards for word in ("write", f"/dev/nvidia{card}", "1")]):
                lines = await probe.output()
        except StartRefused as refused:
            self._trouble(f"no container gets the GPUs: {refused}", gpu_remedy(facts))
            return None
        if missing := missing_cards(lines, cards):
            self._trouble(f"containers do not get GPU {', '.join(missing)}", gpu_remedy(facts))
            return None
        return way

    def _trouble(self, what: str, remedy: str) -> None:
        self._troubles.append(RuntimeTrouble(what, remedy))


async def load_probe_image(engine: ContainerEngine) -> None:
    """Once per engine: the tag names the content."""
    if await find_image(engine, probe_image.image_tag()) is not None:
        return
    try:
        async with within(ENGINE_S):
            await engine.docker.images.import_image(probe_image.image_archive())
    except DockerError as error:
        raise StartRefused(f"the engine does not take an image: {error.message}") from None


def broken_limits(lines: list[str]) -> set[str]:
    """What the program's output shows. `processor?`: it had so little of the processor that nothing can be said."""
    words = [line.split() for line in lines]
    broken = set()
    for spin in (each for each in words if each[:1] == ["spin"]):
        if int(spin[1]) > SPIN_SHARE_MAX * int(spin[2]):
            broken.add("processor")
    counts = [int(each[2]) for each in words if each[:2] == ["find", "nr_throttled"]]
    if "processor" not in broken and max(counts, default=-1) == 0:
        broken.add("processor?")
    forks = [int(each[1]) for each in words if each[:1] == ["fork"]]
    if not forks or forks[0] > LIMIT_PIDS:
        broken.add("processes")
    if any(each[:1] == ["alloc"] and int(each[1]) > LIMIT_MIB for each in words):
        broken.add("memory")
    return broken


def gpu_way(facts: EngineFacts, *, cdi_folders: tuple[Path, ...] = CDI_FOLDERS) -> GpuWay | None:
    if not facts.is_podman:
        return "device_requests" if facts.has_nvidia_runtime else None
    for folder in cdi_folders:
        with suppress(OSError):
            if any(CDI_KIND in path.read_text(errors="replace") for path in folder.glob("*") if path.is_file()):
                return "cdi"
    return None


def gpu_remedy(facts: EngineFacts) -> str:
    return "Install nvidia-container-toolkit, then: " + (
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        if facts.is_podman
        else "nvidia-ctk runtime configure --runtime=docker, and restart Docker"
    )


def missing_cards(lines: list[str], cards: list[str]) -> list[str]:
    """Those that a program cannot open. A driver refuses to be written to; a plain file in its place takes it."""
    written = [line.split() for line in lines if line.startswith("write ")]
    answers = {card: answer[1:] for card, answer in zip(cards, written, strict=False)}
    return [card for card in cards if answers.get(card) != _DRIVER_ANSWER]


def start_remedy(reason: str) -> str:
    lower = reason.lower()
    if "hybrid" in lower or "crun" in lower:
        return 'crun does not start on hybrid cgroups: install runc, and set runtime="runc" in containers.conf.'
    if "rlimit" in lower:
        return "Lower default_ulimits in containers.conf: the engine may not raise its limits here."
    if "netavark" in lower or "iptables" in lower or "cni" in lower:
        return f'Install what podman needs for bridges, and set network_backend="netavark": {INSTALL}'
    return f"See the engine's own log. Packages that work: {INSTALL}"


def table_remedy(reason: str) -> str:
    lower = reason.lower()
    if "not installed" in lower:
        return "Install it, as root: apt-get install nftables"
    if "permitted" in lower or "permission" in lower:
        return "Run the node as root, or give its service CAP_NET_ADMIN (AmbientCapabilities=CAP_NET_ADMIN)."
    return "The kernel must have nf_tables: modprobe nf_tables"
