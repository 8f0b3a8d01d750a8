"""The node process: key, model server, inventory and agent put together; SIGTERM drains, a second one does not wait."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import JoinRefused, StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import SystemRng
from sparewatt.machine.data_dir import DataDir
from sparewatt.machine.signals import stop_event
from sparewatt.node.agent import NodeAgent
from sparewatt.node.backends.auto_detected import AutoDetectedBackend
from sparewatt.node.backends.backend import Backend, BackendError, BackendModel
from sparewatt.node.backends.backend_source import check_backend_url, http_address, model_server
from sparewatt.node.backends.capability_probe import probe_capabilities
from sparewatt.node.hardware.cpu import CpuPower
from sparewatt.node.hardware.detection import HostGpuProbe, detect_hardware
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.identity import load_or_create_key
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.log_file import OWNER_MESSAGE_EVENT, log_to_file
from sparewatt.node.measurement.speed_file import SPEED_FILE, SpeedFile
from sparewatt.node.owner.control_socket import serve_control
from sparewatt.node.owner.owner_control import OwnerControl
from sparewatt.node.owner.owner_rules import read_owner_rules
from sparewatt.node.saved_settings import save_settings
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.gpu_speed import measure_gpu
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.node_report import Capability

_log = Logger("sparewatt.node")
SERVER_PAUSE_S = 0.1
TOKEN_ENV = "SPAREWATT_NODE_TOKEN"  # noqa: S105 (a name, not a secret)


async def run_node(settings: NodeSettings, *, tell: Callable[[str], None]) -> None:
    """Serve until stopped. Raises StartupError or JoinRefused."""
    check_gateway_url(settings.gateway_url, insecure=settings.insecure)
    if settings.backend_url is not None:
        check_backend_url(settings.backend_url)
    os.environ.pop(TOKEN_ENV, None)  # read by now; the model server that we may start has no business with it
    with DataDir(settings.data_dir):  # two agents with one key would take the link from each other for ever
        await _run_in_data_dir(settings, tell=tell)


async def _run_in_data_dir(settings: NodeSettings, *, tell: Callable[[str], None]) -> None:
    clock, rng = SystemClock(), SystemRng()
    log_to_file(settings.data_dir)
    tell = also_logged(tell)
    key = load_or_create_key(settings.data_dir, rng=rng)
    wishes = read_owner_rules(settings.data_dir)
    machine = await asyncio.to_thread(HostGpuProbe)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        model_server(settings, session, clock=clock, rng=rng, tell=tell) as backend_url,
    ):
        backend = AutoDetectedBackend(backend_url, session, clock=clock)
        inventory = Inventory(
            settings,
            backend,
            detect_hardware(settings, machine),
            SpeedFile(settings.data_dir / SPEED_FILE),
            clock=clock,
            rng=rng,
            tell=tell,
            probe_capabilities=lambda model: probe_undeclared_capabilities(backend, model),
        )
        await _wait_for_server(backend, backend_url, within_s=settings.backend_wait_s, clock=clock)
        save_settings(settings)
        receipts = ReceiptIssuer(settings.data_dir, key, clock=clock)
        jobs = NodeJobRunner(backend, inventory, limit_tps=settings.speed_limit_tps, clock=clock, receipts=receipts)
        sensing = SensorSampler(machine, CpuPower(now_s=clock.now_s), clock=clock, is_working=lambda: jobs.count() > 0)
        agent = NodeAgent(
            settings,
            key=key,
            inventory=inventory,
            jobs=jobs,
            receipts=receipts,
            session=session,
            clock=clock,
            rng=rng,
            tell=tell,
            sensing=sensing,
        )
        stop = stop_event()
        desk = OwnerControl(
            address=key.address,
            server_url=backend_url,
            agent=agent,
            inventory=inventory,
            jobs=jobs,
            sensing=sensing,
            wishes=wishes,
            clock=clock,
            tell=tell,
            stop=stop,
        )
        desk.check_pauses()  # before the first join: a paused node must not get a job between two looks
        sensing.start()
        async with serve_control(settings.data_dir, desk.answer, rng=rng):
            beside = [desk.run(), measure_gpu(inventory, settings.data_dir, tell=tell)]
            await _run_until_stopped(agent, inventory, stop=stop, beside=beside)
        sensing.stop()
        await jobs.close()


async def probe_undeclared_capabilities(backend: Backend, model: BackendModel) -> tuple[Capability, ...]:
    """What a model can do besides what its server tells: found out once, when it is first seen loaded."""
    known = model.capabilities or ()
    if model.capabilities_complete:
        return ()
    return await probe_capabilities(
        backend, model.id, [each for each in backend.capabilities_to_probe if each not in known]
    )


def also_logged(tell: Callable[[str], None]) -> Callable[[str], None]:
    """What is told on the terminal also stands in the log file: an agent that runs as a service has no terminal."""

    def both(text: str) -> None:
        _log.info(OWNER_MESSAGE_EVENT, text=text)
        tell(text)

    return both


async def _wait_for_server(backend: Backend, url: str, *, within_s: float, clock: Clock) -> None:
    """A server that is just starting gets a moment; none at all is told before a join token is spent on it."""
    deadline_s = clock.now_s() + within_s
    while True:
        try:
            await backend.models()
        except BackendError as error:
            if clock.now_s() >= deadline_s:
                raise StartupError(
                    f"No model server answers at {url} ({error}). Start it first, or name another with --backend."
                ) from None
            await asyncio.sleep(SERVER_PAUSE_S)
        else:
            return


async def _run_until_stopped(
    agent: NodeAgent, inventory: Inventory, *, stop: asyncio.Event, beside: Sequence[Coroutine[Any, Any, None]]
) -> None:
    """`beside`: what else goes on for as long as the agent does."""
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(work) for work in (inventory.run(), *beside)]
            joined = tasks.create_task(agent.run())
            await _first_of(stop, joined)
            if stop.is_set():
                await agent.drain()
            await joined
            for task in background:
                task.cancel()
    except* (JoinRefused, StartupError) as group:
        raise group.exceptions[0] from None


async def _first_of(stop: asyncio.Event, joined: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, joined], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def check_gateway_url(url: str, *, insecure: bool) -> None:
    """Plain HTTP only to this machine, unless the owner insists."""
    parts = http_address(url)
    if parts is None or parts.hostname is None:
        raise StartupError(
            f"{url!r} is no gateway address. It looks like https://gateway.example or http://127.0.0.1:8484."
        )
    if parts.scheme == "http" and not insecure and not _is_loopback(parts.hostname):
        raise StartupError(
            f"{parts.hostname} would be reached by plain http://, which anyone on the way can read and change. "
            "Use https://, or --insecure if you know that the network is yours."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
