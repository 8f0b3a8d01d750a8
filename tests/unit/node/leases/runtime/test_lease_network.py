from __future__ import annotations

from typing import Any, cast

import pytest
from aiodocker.exceptions import DockerError

from sparewatt.node.leases.runtime.engine import ContainerEngine
from sparewatt.node.leases.runtime.lease_network import RANGES_TRIED_MAX, LeaseNetworks
from sparewatt.node.leases.runtime.model import ContainerPlan, LeaseLabel, StartRefused
from sparewatt.node.leases.runtime.naming import candidate_ranges, container_name, labels_of

LABEL = LeaseLabel("0x1", 1, 1, "0xa")
PLAN = ContainerPlan(label=LABEL, image="i", cpu_milli=1, memory_mib=1, disk_mib=1, egress=True)


class FakeNetworks:
    """A Docker engine with networks alone."""

    is_podman = False

    def __init__(self, *, refusals: int = 0) -> None:
        self.docker = self.networks = self
        self.made: list[dict[str, Any]] = []
        self.refusals = refusals
        self.asked = 0

    async def facts(self) -> FakeNetworks:
        return self

    async def list(self) -> list[dict[str, Any]]:
        return self.made

    async def create(self, config: dict[str, Any]) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise DockerError(403, "Pool overlaps with other one on this address space")
        self.made.append(config)


def networks(engine: FakeNetworks, routes: str = "") -> LeaseNetworks:
    return LeaseNetworks(cast("ContainerEngine", engine), routes=lambda: routes)


async def test_a_network_is_made_once_and_found_again() -> None:
    engine = FakeNetworks()
    first = await networks(engine).ensure(PLAN)
    assert await networks(engine).ensure(PLAN) == first == next(candidate_ranges(LABEL, []))
    assert engine.asked == 1
    assert await networks(engine).labels() == [LABEL]


async def test_a_range_that_somebody_took_in_between_is_passed_over() -> None:
    engine = FakeNetworks(refusals=2)
    third = list(candidate_ranges(LABEL, []))[2]
    assert await networks(engine).ensure(PLAN) == third


async def test_ranges_of_other_networks_and_of_routes_are_not_tried() -> None:
    engine = FakeNetworks()
    first, second, third = list(candidate_ranges(LABEL, []))[:3]
    other = {"Name": "other", "IPAM": {"Config": [{"Subnet": str(first.network)}, {"Subnet": "fd00::/64"}, {}]}}
    engine.made.append(other)
    address = int(second.network.network_address).to_bytes(4, "little").hex()
    routes = f"Iface ...\neth0 {address} 00000000 1 0 0 0 FCFFFFFF 0 0 0\n"
    assert await networks(engine, routes).ensure(PLAN) == third


async def test_an_engine_that_refuses_all_is_asked_a_bounded_number_of_times() -> None:
    engine = FakeNetworks(refusals=10**6)
    with pytest.raises(StartRefused, match="overlaps"):
        await networks(engine).ensure(PLAN)
    assert engine.asked == RANGES_TRIED_MAX


async def test_networks_of_others_are_not_ours() -> None:
    engine = FakeNetworks()
    engine.made += [{"Name": "bridge"}, {"Name": container_name(LABEL), "Labels": labels_of(LABEL, disk_mib=1)}]
    assert await networks(engine).labels() == [LABEL]
