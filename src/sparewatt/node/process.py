"""The node process: the composition root of key, model server, inventory and agent.

SIGTERM drains: running jobs are finished first. A second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from sparewatt.core.address_rules import names_loopback
from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.errors import JoinRefused, StartupError
from sparewatt.core.log import Logger
from sparewatt.core.rng import Rng, SystemRng
from sparewatt.machine.data_dir import DataDir
from sparewatt.machine.signals import stop_event
from sparewatt.node.agent import NodeAgent
from sparewatt.node.backends.backend import Backend, BackendError
from sparewatt.node.backends.backend_source import ModelServer, check_backend_url, http_address, model_server
from sparewatt.node.backends.capability_probe import probe_undeclared_capabilities
from sparewatt.node.backends.discovery import AutoDetectedBackend
from sparewatt.node.hardware.cpu import CpuPower
from sparewatt.node.hardware.detection import HostGpuProbe, describe_hardware
from sparewatt.node.hardware.machine_use import MachineUse
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.identity import load_or_create_key
from sparewatt.node.jobs.job_runner import NodeJobRunner
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.leases.access.lease_streams import LeaseStreams
from sparewatt.node.leases.access.reachable import find_reachable
from sparewatt.node.leases.access.traffic_client import TrafficClient
from sparewatt.node.leases.lease_service import LeaseService
from sparewatt.node.leases.machine.card_users import StoppableServer, stopped_url
from sparewatt.node.leases.machine.cards import used_cards
from sparewatt.node.leases.machine.inference_pay import InferencePay
from sparewatt.node.leases.machine.machine_market import InferencePart
from sparewatt.node.leases.machine.node_inference import NodeInference
from sparewatt.node.leases.runtime.loading import load_runtime
from sparewatt.node.log_file import OWNER_MESSAGE_EVENT, log_to_file
from sparewatt.node.owner.control_socket import serve_control
from sparewatt.node.owner.owner_control import OwnerControl
from sparewatt.node.owner.owner_rules import read_owner_rules
from sparewatt.node.settings import NodeSettings, save_settings
from sparewatt.node.specs.inventory import Inventory
from sparewatt.protocol.link.lease_tasks import LeaseAct, LeaseReport
from sparewatt.protocol.signing import SigningKey

_log = Logger("sparewatt.node")
SERVER_POLL_S = 0.1
TOKEN_ENV = "SPAREWATT_NODE_TOKEN"  # noqa: S105 (a name, not a secret)


async def run_node(settings: NodeSettings, *, notify: Callable[[str], None]) -> None:
    """Serve until stopped. `notify` shows one line to the owner. Raises StartupError or JoinRefused."""
    check_gateway_url(settings.gateway_url, insecure=settings.insecure)
    if settings.backend_url is not None:
        check_backend_url(settings.backend_url)
    settings.owner_facts()  # raises for a fact that makes no sense, before anything is started
    settings.fetch_hosts()
    check_chain_url(settings.chain_url)
    os.environ.pop(TOKEN_ENV, None)  # already read; a model server that we start must not inherit it
    with DataDir(settings.data_dir):  # locked: two agents with one key would replace each other's link for ever
        await _run_in_data_dir(settings, notify=notify)


async def _run_in_data_dir(settings: NodeSettings, *, notify: Callable[[str], None]) -> None:
    clock, rng = SystemClock(), SystemRng()
    log_to_file(settings.data_dir)
    notify = also_logged(notify)
    key = load_or_create_key(settings.data_dir, rng=rng)
    rules = read_owner_rules(settings.data_dir)
    was_at = stopped_url(settings.data_dir)
    gpu_probe = await asyncio.to_thread(HostGpuProbe)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        model_server(settings, session, clock=clock, rng=rng, notify=notify, stopped_url=was_at) as server,
    ):
        backend_url = server.url
        backend = AutoDetectedBackend(backend_url, session, clock=clock)
        cpu_power = CpuPower(now_s=clock.now_s)
        sampler = SensorSampler(gpu_probe, cpu_power, clock=clock, is_working=lambda: jobs.count() > 0)
        hardware = describe_hardware(settings, gpu_probe.gpus())

        inference = NodeInference(
            jobs=lambda: jobs, inventory=lambda: inventory, is_joined=lambda: agent.joined_unix_s is not None
        )
        pay = InferencePay(
            data_dir=settings.data_dir, clock=clock, prices_of=inference.prices_of, is_serving=inference.is_serving
        )

        def say_lease(said: LeaseAct | LeaseReport) -> None:
            agent.say_lease(said)

        leases = LeaseService(
            hardware,
            settings=settings,
            key=key,
            clock=clock,
            rng=rng,
            notify=notify,
            current_settings=lambda: inventory.settings,
            is_paused=lambda: jobs.paused is not None or jobs.draining,
            runtime=load_runtime(
                socket=settings.container_socket,
                state_dir=settings.data_dir,
                gpu_count=len(hardware.gpus),
                clock=clock,
                rng=rng,
            ),
            inference=InferencePart(
                inference=inference,
                used_cards=lambda: used_cards(hardware.gpus, sampler.latest()[0]),
                is_local=names_loopback(urlsplit(backend_url).hostname or ""),
                own_server=stoppable(server, settings.data_dir),
                url=backend_url,
                pay=pay,
            ),
            say=say_lease,
            gateway_ports=lambda: agent.link_ports,
            on_offer_changed=lambda: inventory.refresh_soon(),  # noqa: PLW0108 (it is made below)
        )
        inventory = Inventory(
            settings,
            backend,
            hardware,
            clock=clock,
            rng=rng,
            notify=notify,
            probe_capabilities=probe_undeclared_capabilities,
            machine_use=MachineUse(clock=clock, gpu_readings=lambda: sampler.latest()[0]),
            lease_offer=leases.offer,
        )
        if was_at is None:
            await _wait_for_server(backend, backend_url, within_s=settings.backend_wait_s, clock=clock)
        save_settings(settings)
        receipts = ReceiptIssuer(settings.data_dir, key, clock=clock)
        jobs = NodeJobRunner(backend, inventory, clock=clock, receipts=receipts, on_delivered=pay.note_delivered)
        agent = NodeAgent(
            settings=settings,
            key=key,
            inventory=inventory,
            jobs=jobs,
            receipts=receipts,
            session=session,
            clock=clock,
            rng=rng,
            notify=notify,
            sampler=sampler,
            market=leases.bidder,
            serve_traffic=_traffic_client(leases, settings, session=session, key=key, clock=clock, rng=rng),
        )
        stop = stop_event()
        owner_control = OwnerControl(
            backend_url=backend_url,
            agent=agent,
            sampler=sampler,
            rules=rules,
            leases=leases,
            clock=clock,
            notify=notify,
            stop=stop,
        )
        await leases.restore()
        owner_control.check_pauses()  # before the first join: a paused node must not get a job in its first second
        sampler.start()
        async with serve_control(settings.data_dir, owner_control.answer, rng=rng):
            background = [
                inventory.run(on_backend_lost=jobs.fail_waiting),
                inventory.measure_gpu(),
                owner_control.run(),
                leases.run(),
            ]
            await _run_until_stopped(agent, background, stop=stop)
        sampler.stop()
        await jobs.close()


def _traffic_client(
    leases: LeaseService,
    settings: NodeSettings,
    *,
    session: aiohttp.ClientSession,
    key: SigningKey,
    clock: Clock,
    rng: Rng,
) -> Callable[[str], Awaitable[None]] | None:
    """None on a machine that runs no containers."""
    if leases.runtime is None or leases.runner is None:
        return None
    streams = LeaseStreams(runtime=leases.runtime, find=partial(find_reachable, leases.runner), clock=clock)
    return TrafficClient(streams=streams, session=session, key=key, rng=rng, library=settings.link_library).serve


def stoppable(server: ModelServer, data_dir: Path) -> StoppableServer | None:
    """The agent's own model server, as what gives way to a lease."""
    own = server.own
    if own is None:
        return None
    return StoppableServer(data_dir=data_dir, url=server.url, stop=own.stop, start=own.start)


def also_logged(notify: Callable[[str], None]) -> Callable[[str], None]:
    """Messages to the owner are logged too: an agent that runs as a service has no terminal."""

    def both(text: str) -> None:
        _log.info(OWNER_MESSAGE_EVENT, text=text)
        notify(text)

    return both


async def _wait_for_server(backend: Backend, url: str, *, within_s: float, clock: Clock) -> None:
    """A server may just be starting. Without one the join fails here, before it spends its join token."""
    deadline_s = clock.now_s() + within_s
    while True:
        try:
            await backend.models()
        except BackendError as error:
            if clock.now_s() >= deadline_s:
                raise StartupError(
                    f"No model server answers at {url} ({error}). Start it first, or name another with --backend."
                ) from None
            await asyncio.sleep(SERVER_POLL_S)
        else:
            return


async def _run_until_stopped(
    agent: NodeAgent, background: Sequence[Coroutine[Any, Any, None]], *, stop: asyncio.Event
) -> None:
    try:
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(each) for each in background]
            joined = tasks.create_task(agent.run())
            stopped = tasks.create_task(stop.wait())
            await asyncio.wait([stopped, joined], return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                await agent.drain()
            await joined
            for task in (*others, stopped):
                task.cancel()
    except* (JoinRefused, StartupError) as group:
        raise group.exceptions[0] from None


def check_gateway_url(url: str, *, insecure: bool) -> None:
    """Plain HTTP only to this machine, unless the owner insists."""
    parts = http_address(url)
    if parts is None or parts.hostname is None:
        raise StartupError(
            f"{url!r} is no gateway address. It looks like https://gateway.example or http://127.0.0.1:8484."
        )
    if parts.scheme == "http" and not insecure and not names_loopback(parts.hostname):
        raise StartupError(
            f"{parts.hostname} would be reached by plain http://, which anyone on the way can read and change. "
            "Use https://, or --insecure if you know that the network is yours."
        )


def check_chain_url(url: str | None) -> None:
    """Any address of the owner's choice: it is dialled for the owner, not for a stranger."""
    if url is not None and http_address(url) is None:
        raise StartupError(f"{url!r} is no address of a chain's node. It looks like http://127.0.0.1:8545.")
