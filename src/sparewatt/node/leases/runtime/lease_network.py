"""The bridge of one lease: made with a range of addresses that nothing on this machine uses, and taken away again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Network
from itertools import islice
from pathlib import Path
from typing import Any

from aiodocker.exceptions import DockerError

from sparewatt.node.leases.runtime.container_spec import docker_network, libpod_network
from sparewatt.node.leases.runtime.engine import ENGINE_S, ContainerEngine, within
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel, MachineUnable
from sparewatt.node.leases.runtime.naming import (
    LeaseRange,
    bridge_name,
    candidate_ranges,
    container_name,
    label_of,
    routed_networks,
)

RANGES_TRIED_MAX = 16
"""Another agent, or another program, may take a range in the moment between."""
ROUTES = Path("/proc/net/route")


def read_routes() -> str:
    try:
        return ROUTES.read_text()
    except OSError:
        return ""


class LeaseNetworks:
    def __init__(self, engine: ContainerEngine, *, routes: Callable[[], str] = read_routes) -> None:
        self._engine = engine
        self._routes = routes

    async def ensure(self, plan: ContainerPlan) -> LeaseRange:
        """The lease's own, made if it is not there. Raises MachineUnable."""
        networks = await self._all()
        name = container_name(plan.label)
        for network in networks:
            if network.get("Name") == name and (ranges := _ranges(network)):
                return LeaseRange(ranges[0])
        taken = [*routed_networks(self._routes()), *(each for network in networks for each in _ranges(network))]
        reason = "no range of addresses is free"
        for candidate in islice(candidate_ranges(plan.label, taken), RANGES_TRIED_MAX):
            try:
                await self._create(plan, candidate)
            except DockerError as error:
                reason = error.message
            else:
                return candidate
        raise MachineUnable(f"the lease gets no bridge: {reason}")

    async def remove(self, label: LeaseLabel) -> None:
        """Idempotent."""
        with suppress(DockerError):  # there is none
            async with within(ENGINE_S):
                await (await self._engine.docker.networks.get(container_name(label))).delete()

    async def labels(self) -> list[LeaseLabel]:
        """Of all that are ours, also of those that no container uses."""
        found = (label_of(network.get("Labels") or {}) for network in await self._all())
        return [label for label in found if label is not None]

    async def _create(self, plan: ContainerPlan, candidate: LeaseRange) -> None:
        bridge, is_podman = bridge_name(plan), (await self._engine.facts()).is_podman
        async with within(ENGINE_S):
            if is_podman:
                body = libpod_network(plan, bridge=bridge, network=candidate)
                await self._engine.libpod("networks/create", body)
            else:
                await self._engine.docker.networks.create(docker_network(plan, bridge=bridge, network=candidate))

    async def _all(self) -> list[dict[str, Any]]:
        async with within(ENGINE_S):
            return await self._engine.docker.networks.list()


def _ranges(network: dict[str, Any]) -> list[IPv4Network]:
    found = []
    for each in (network.get("IPAM") or {}).get("Config") or ():
        with suppress(ValueError):
            found.append(IPv4Network(each.get("Subnet") or ""))
    return found
