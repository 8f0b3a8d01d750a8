"""What a renter's program cannot do on this machine, by trying it from inside a real container."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import SystemRng
from sparewatt.node.leases.runtime.ability import AbilityProof
from sparewatt.node.leases.runtime.docker_runtime import DockerRuntime
from sparewatt.node.leases.runtime.egress_table import AGENT_PORT, TableRefused
from sparewatt.node.leases.runtime.egress_table import TABLE as PRODUCT_TABLE
from sparewatt.node.leases.runtime.egress_trial import own_address, read_connects
from sparewatt.node.leases.runtime.engine import ContainerEngine
from sparewatt.node.leases.runtime.engine_containers import EngineContainers
from sparewatt.node.leases.runtime.model import (
    ContainerState,
    EngineUnavailable,
    LeaseContainer,
    RestartRule,
    RuntimeAbility,
    StartRefused,
)
from sparewatt.node.leases.runtime.naming import container_name
from sparewatt.node.leases.runtime.probe_container import ProbeContainer, sweep_probes
from sparewatt.node.leases.runtime.vanished import VANISHED_S
from tests.contract.runtime.conftest import TABLE, RuntimeRig
from tests.waiting import until

LONG = ("wait", "600000")
SILENCE_MS = "400"
ELSEWHERE = ("10.255.255.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "198.18.0.1")


def listed_tables() -> str:
    return subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout


def flush_table() -> None:
    """As somebody does who reloads the host's firewall."""
    subprocess.run(["nft", "delete", "table", "inet", TABLE], capture_output=True, check=False)


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


async def reached(rig: RuntimeRig, lease: LeaseContainer, targets: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """What answered of them, and how."""
    tasks = [word for address, port in targets for word in ("connect", SILENCE_MS, address, str(port))]
    answers = read_connects(await rig.execute(lease.label, *tasks))
    assert list(answers) == targets
    return {target: answer for target, answer in answers.items() if answer != "timeout"}


def test_this_machine_is_found_able(proven: RuntimeAbility) -> None:
    assert proven.engine.startswith(("podman ", "docker "))
    assert (proven.limits, proven.egress, proven.troubles) == (True, True, ())


async def test_a_program_that_takes_twice_its_memory_dies_alone(real: RuntimeRig) -> None:
    neighbour = await real.start(*LONG)
    greedy = await real.start("alloc", "128", memory_mib=64, restart=RestartRule.NEVER)
    ended = await real.until(greedy.label, lambda seen: seen.state is ContainerState.EXITED)
    assert (ended.exit_code, await real.output(greedy.label)) == (137, [])
    seen = await real.runtime.container(neighbour.label)
    assert seen is not None
    assert (seen.state, seen.started_unix_s) == (ContainerState.RUNNING, neighbour.started_unix_s)


async def test_a_fork_bomb_and_a_busy_loop_keep_to_their_limits(real: RuntimeRig) -> None:
    lease = await real.start(*("fork", "500", "spin", "600"), pids_max=32, cpu_milli=100, restart=RestartRule.NEVER)
    await real.until(lease.label, lambda seen: seen.state is ContainerState.EXITED)
    (forked, spun) = (line.split() for line in await real.output(lease.label))
    assert 0 < int(forked[1]) < 32
    assert int(spun[1]) <= 0.3 * int(spun[2]), "a tenth of a processor, with room for the periods at both ends"


async def test_a_program_has_no_privileges_and_sees_nothing_of_the_host(
    real: RuntimeRig, podman: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "node.key"
    secret.write_text("secret 1")
    lease = await real.start(*LONG)
    seen = await real.execute(
        lease.label,
        *("find", "/proc/self/status", "NoNewPrivs:", "find", "/proc/self/status", "CapEff:"),
        *("find", "/proc/self/status", "CapBnd:", "find", "/proc/self/status", "Seccomp:"),
        *("find", str(secret), "secret", "write", str(podman), "1", "write", "/proc/sys/kernel/core_pattern", "1"),
    )
    assert seen[:5] == ["find NoNewPrivs: 1", "find CapEff: 0", "find CapBnd: 0", "find Seccomp: 2", "find secret -1"]
    assert [line.split()[1] for line in seen[5:]] == ["0", "0"], "nothing was written"


async def test_a_read_only_lease_writes_to_its_own_tmp_alone(real: RuntimeRig) -> None:
    lease = await real.start(*LONG, read_only=True)
    assert await real.execute(lease.label, "write", "/data/file", "1", "write", "/tmp/file", "1") == [  # noqa: S108
        "write 0 30",
        "write 1 0",
    ]


async def test_a_lease_reaches_neither_host_nor_private_networks_nor_another_lease(real: RuntimeRig) -> None:
    other = await real.start("listen", "7000", ports=(7000,))
    lease = await real.start(*LONG)
    await real.printed(other.label)
    reader, writer = await real.runtime.connect(other.label, 7000)
    assert await reader.read() == b"probe\n", "the agent gets in"
    writer.close()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "0.0.0.0", 0)  # noqa: S104
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert lease.host_address is not None
        assert other.host_address is not None
        assert other.address is not None
        hosts = [(address, port) for address in (lease.host_address, other.host_address, own_address())]
        assert await reached(real, lease, [*hosts, (other.address, 7000), (lease.host_address, AGENT_PORT)]) == {}
    assert await reached(real, lease, [(address, 80) for address in ELSEWHERE]) == {}


async def test_only_a_lease_with_the_agents_port_reaches_it_and_only_on_its_own_bridge(real: RuntimeRig) -> None:
    lease = await real.start(*LONG, agent_port=True)
    other = await real.start(*LONG, agent_port=True)
    assert lease.host_address is not None
    assert other.host_address is not None
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "0.0.0.0", AGENT_PORT)  # noqa: S104
    async with server:
        own, others = (lease.host_address, AGENT_PORT), (other.host_address, AGENT_PORT)
        assert await reached(real, lease, [own, others]) == {own: "connected"}


async def test_a_lease_without_egress_reaches_nothing_and_is_reached_by_the_agent(real: RuntimeRig) -> None:
    lease = await real.start("listen", "7000", egress=False, ports=(7000,))
    await real.printed(lease.label)
    reader, writer = await real.runtime.connect(lease.label, 7000)
    assert await reader.read() == b"probe\n"
    writer.close()
    answers = await reached(real, lease, [("1.1.1.1", 80), (lease.host_address or "", 80)])
    assert "connected" not in answers.values()
    assert "refused" not in answers.values()


async def test_a_table_that_somebody_flushes_is_soon_back(real: RuntimeRig) -> None:
    await real.start(*LONG)
    assert TABLE in listed_tables()
    flush_table()
    await until(lambda: TABLE in listed_tables())


async def wait_until_gone(rig: RuntimeRig, lease: LeaseContainer) -> None:
    """While it is removed, podman shows it to nobody, and says neither that it is there nor that it is not."""
    async with asyncio.timeout(3 * VANISHED_S):
        while True:
            with suppress(EngineUnavailable):
                if await rig.runtime.container(lease.label) is None:
                    return
            await asyncio.sleep(0.1)


async def test_a_program_that_ends_after_its_monitor_was_killed_is_not_shown_as_running_for_ever(
    real: RuntimeRig, podman: Path
) -> None:
    """podman hears of the end from the monitor alone, and cannot start such a container again."""
    other, lease = await real.start(*LONG), await real.start(*LONG)
    engine = ContainerEngine(podman)
    found = await EngineContainers(engine).inspect(container_name(lease.label))
    await engine.close()
    assert found is not None
    program = psutil.Process(found["State"]["Pid"])
    monitor = program.parent()
    assert monitor is not None
    assert monitor.name() == "conmon"
    monitor.kill()
    await until(lambda: not monitor.is_running())
    program.kill()
    await wait_until_gone(real, lease)
    again = await real.runtime.start(replace(real.plan(*LONG), label=lease.label))
    assert again.state is ContainerState.RUNNING
    assert (await real.runtime.container(other.label)) is not None


def unmount(folder: str) -> None:
    subprocess.run(["umount", folder], check=True)


async def test_a_container_that_podman_has_half_removed_hides_no_other(real: RuntimeRig, podman: Path) -> None:
    """As after a kill in the middle of a removal: podman knows of it, has no storage of it, and lists nothing."""
    other, lease = await real.start(*LONG), await real.start(*LONG)
    engine = ContainerEngine(podman)
    found = await EngineContainers(engine).inspect(container_name(lease.label))
    await engine.close()
    assert found is not None
    (stored,) = (podman.parent / "root").glob("*-containers/containers.json")
    entries = json.loads(stored.read_bytes())
    stored.write_text(json.dumps([entry for entry in entries if entry["id"] != found["Id"]]))
    stored.with_name("containers.lock").write_bytes(bytes(64))  # who wrote last: podman reads its files again
    listed = {each.label for each in await real.runtime.containers()}
    unmount(found["GraphDriver"]["Data"]["MergedDir"])  # a real removal has done that
    assert other.label in listed
    assert lease.label not in listed
    assert not psutil.pid_exists(found["State"]["Pid"])


async def test_a_removed_lease_leaves_neither_bridge_nor_network(real: RuntimeRig) -> None:
    before = interfaces()
    lease = await real.start(*LONG)
    (bridge,) = [name for name in interfaces() - before if name.startswith("swl")]
    assert bridge.startswith("swle-")
    await real.runtime.remove(lease.label)
    assert bridge not in interfaces()


class NoTable:
    """An egress table that claims to hold, or cannot be installed."""

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    async def hold(self) -> None:
        if self._reason:
            raise TableRefused(self._reason)

    async def remove(self) -> None: ...


def runtime_with(table: NoTable, socket: Path) -> DockerRuntime:
    return DockerRuntime(clock=SystemClock(), rng=SystemRng(), socket=socket, table=table)


async def test_a_table_that_does_not_hold_is_found_out(podman: Path) -> None:
    flush_table()
    if "sparewatt_" in listed_tables():
        pytest.skip("something else on this machine has a table in place")
    runtime = runtime_with(NoTable(), podman)
    found = await runtime.ability()
    await runtime.close()
    assert (found.limits, found.egress) == (True, False)
    assert "the host's address on its bridge" in found.troubles[0].what


async def test_without_a_table_leases_run_without_network_or_not_at_all(podman: Path, proven: RuntimeAbility) -> None:
    runtime = DockerRuntime(
        clock=SystemClock(), rng=SystemRng(), socket=podman, proven=replace(proven, egress=False), table=NoTable("no")
    )
    rig = RuntimeRig(runtime, lambda: runtime)
    try:
        with pytest.raises(StartRefused, match="no network"):
            await rig.start(*LONG)
        lease = await rig.start(*LONG, egress=False)
        assert (lease.state, lease.address) == (ContainerState.RUNNING, None)
        assert await reached(rig, lease, [("127.0.0.1", 22)]) == {("127.0.0.1", 22): "refused"}, "its own loopback"
    finally:
        for label in rig.labels:
            await runtime.remove(label)
        await runtime.close()


@pytest.fixture
def cdi_device() -> Iterator[str]:
    """A device that podman knows by a CDI name, as nvidia-ctk makes them for cards: here it is /dev/null."""
    kind = f"sparewatt.test-{os.getpid()}/gpu"
    node = {"path": "/dev/card0", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3}
    edits = {"env": ["CARD=present"], "deviceNodes": [node]}
    path = Path("/var/run/cdi", f"sparewatt-test-{os.getpid()}.json")
    has_folder = path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    device = {"name": "0", "containerEdits": edits}
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": [device]}))
    yield f"{kind}=0"
    path.unlink()
    if not has_folder:
        path.parent.rmdir()


async def test_a_lease_gets_the_cards_that_it_names(real: RuntimeRig, podman: Path, cdi_device: str) -> None:
    ability = replace(await real.runtime.ability(), gpus="cdi")
    if not ability.engine.startswith("podman"):
        pytest.skip("only podman of this release has devices by CDI")
    runtime = DockerRuntime(clock=SystemClock(), rng=SystemRng(), socket=podman, table=NoTable(), proven=ability)
    plan = real.plan("env", "CARD", "write", "/dev/card0", "1", "alloc", "128", gpu_ids=(cdi_device,))
    plan = replace(plan, restart=RestartRule.NEVER, ports=(80,), read_only=True)
    await runtime.start(plan)
    ended = await real.until(plan.label, lambda seen: seen.state is ContainerState.EXITED)
    assert await real.output(plan.label) == ["env CARD=present", "write 1 22"], "its fsync is refused, not its write"
    assert ended.exit_code == 137, "limits hold for it as for any other"
    await runtime.close()


@pytest.fixture
def cdi_file(tmp_path: Path) -> Path:
    """Of a driver that is gone, as after an update: it names a card, and podman does not know it."""
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    return tmp_path


async def test_a_card_that_only_a_file_names_is_not_offered(podman: Path, cdi_file: Path) -> None:
    engine = ContainerEngine(podman)
    if not (await engine.facts()).is_podman:
        pytest.skip("only podman of this release has devices by CDI")
    proof = AbilityProof(
        open_engine=lambda: engine,
        table=NoTable(),
        rng=SystemRng(),
        clock=SystemClock(),
        gpu_count=1,
        cdi_folders=(cdi_file,),
    )
    found = await proof.run(lambda _line: None)
    await engine.close()
    assert (found.limits, found.gpus) == (True, None)
    assert any("GPU" in each.what and "nvidia-ctk cdi generate" in each.remedy for each in found.troubles)


async def test_what_a_dead_agent_left_of_a_trial_is_swept_and_a_running_one_stays(podman: Path) -> None:
    engine, before = ContainerEngine(podman), interfaces()
    probe = ProbeContainer(engine, SystemRng(), memory_mib=32, is_on_bridge=True)
    async with probe.running(list(LONG)):
        await sweep_probes(engine, before_unix_s=SystemClock().unix_s() - 60)
        assert interfaces() > before
        await sweep_probes(engine, before_unix_s=SystemClock().unix_s() + 60)
        assert not {name for name in interfaces() - before if name.startswith("swl")}
    await engine.close()


def test_the_doctor_shows_what_it_found(podman: Path, tmp_path: Path) -> None:
    was_there = PRODUCT_TABLE in listed_tables()
    words = ["node", "doctor", "--leases", "--container-socket", str(podman), "--data", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "sparewatt", *words], capture_output=True, text=True, check=False, timeout=120
    )
    if not was_there:
        subprocess.run(["nft", "delete", "table", "inet", PRODUCT_TABLE], check=False)
    report = json.loads(done.stdout)
    assert report["containers"]["limits"] is True
    found = {check["name"]: check["verdict"] for check in report["checks"]}
    assert (found["containers"], found["egress"]) == ("ok", "ok")
    assert "Trying in containers: egress table" in done.stderr
