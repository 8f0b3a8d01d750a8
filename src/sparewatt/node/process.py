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
from sparewatt.core.log import Log
from sparewatt.core.rng import SystemRng
from sparewatt.machine.data_dir import DataDir
from sparewatt.machine.signals import stop_event
from sparewatt.node.agent import Agent
from sparewatt.node.backends.fronted import FrontedServer
from sparewatt.node.backends.model import Backend, BackendError, BackendModel
from sparewatt.node.backends.trying import find_out
from sparewatt.node.control import listening
from sparewatt.node.desk import Desk
from sparewatt.node.hardware.cpu import CpuPower
from sparewatt.node.hardware.machine import Machine, detect_hardware
from sparewatt.node.hardware.sensing import Sensing
from sparewatt.node.identity import load_or_create_key
from sparewatt.node.inventory import Inventory
from sparewatt.node.jobs import Jobs
from sparewatt.node.kept_terms import keep_terms
from sparewatt.node.log_file import TOLD, log_to_file
from sparewatt.node.measure_gpu import measure_gpu
from sparewatt.node.measured_file import FILE, MeasuredFile
from sparewatt.node.receipts import ReceiptBook
from sparewatt.node.serving import check_backend_url, http_address, model_server
from sparewatt.node.settings import NodeSettings
from sparewatt.node.wishes import read_wishes
from sparewatt.protocol.node import Capability

_log = Log("sparewatt.node")
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
    wishes = read_wishes(settings.data_dir)
    machine = await asyncio.to_thread(Machine)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        model_server(settings, session, clock=clock, rng=rng, tell=tell) as backend_url,
    ):
        backend = FrontedServer(backend_url, session, clock=clock)
        inventory = Inventory(
            settings,
            backend,
            detect_hardware(settings, machine),
            MeasuredFile(settings.data_dir / FILE),
            clock=clock,
            rng=rng,
            tell=tell,
            find_out=lambda model: can_also(backend, model),
        )
        await _wait_for_server(backend, backend_url, within_s=settings.backend_wait_s, clock=clock)
        keep_terms(settings)
        receipts = ReceiptBook(settings.data_dir, key, clock=clock)
        jobs = Jobs(backend, inventory, limit_tps=settings.speed_limit_tps, clock=clock, receipts=receipts)
        sensing = Sensing(machine, CpuPower(now_s=clock.now_s), clock=clock, is_working=lambda: jobs.count() > 0)
        agent = Agent(
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
        desk = Desk(
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
        desk.look()  # before the first join: a paused node must not get a job between two looks
        sensing.start()
        async with listening(settings.data_dir, desk.answer, rng=rng):
            beside = [desk.run(), measure_gpu(inventory, settings.data_dir, tell=tell)]
            await _run_until_stopped(agent, inventory, stop=stop, beside=beside)
        sensing.stop()
        await jobs.close()


async def can_also(backend: Backend, model: BackendModel) -> tuple[Capability, ...]:
    """What a model can do besides what its server tells: found out once, when it is first seen loaded."""
    known = model.capabilities or ()
    if model.names_all:
        return ()
    return await find_out(backend, model.id, [each for each in backend.to_try if each not in known])


def also_logged(tell: Callable[[str], None]) -> Callable[[str], None]:
    """What is told on the terminal also stands in the log file: an agent that runs as a service has no terminal."""

    def both(text: str) -> None:
        _log.info(TOLD, text=text)
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
    agent: Agent, inventory: Inventory, *, stop: asyncio.Event, beside: Sequence[Coroutine[Any, Any, None]]
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
