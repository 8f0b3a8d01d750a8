"""The parts of leasing put together, as the node process has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import InvalidField
from sparewatt.core.rng import seeded
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.leases.lease_service import LeaseService
from sparewatt.node.leases.offer_rules import LeaseRules
from sparewatt.node.leases.rules_file import read_lease_rules, write_lease_rules
from sparewatt.node.leases.runtime.model import RuntimeAbility
from sparewatt.node.leases.runtime.runtime import LeaseRuntime
from sparewatt.node.settings import NodeSettings
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder
from sparewatt.protocol.link.lease_frames import ValidatorPeer
from sparewatt.protocol.link.lease_offer import LeasePrice
from sparewatt.testing.memory_runtime import MemoryEngine, MemoryRuntime
from tests.unit.node.leases.lease_world import NODE_KEY, lookup, market
from tests.unit.node.rig import node_settings
from tests.waiting import until

TWO_CARDS = Hardware(
    gpu="NVIDIA GeForce RTX 4090",
    gpu_count=2,
    vram_bytes=48 * 10**9,
    tflops=160.0,
    gpus=(
        DetectedGpu("nvidia", "NVIDIA GeForce RTX 4090", 24 * 10**9),
        DetectedGpu("nvidia", "NVIDIA GeForce RTX 3090", 23_900_000_000),
    ),
)
NAMED_CARD = Hardware(gpu="RTX 4090", gpu_count=1, vram_bytes=24 * 10**9, tflops=82.6)


def service(hardware: Hardware, settings: NodeSettings, *, runtime: LeaseRuntime | None = None) -> LeaseService:
    return LeaseService(
        hardware,
        settings=settings,
        key=NODE_KEY,
        clock=SystemClock(),
        rng=seeded(1),
        notify=lambda _: None,
        current_settings=lambda: settings,
        is_paused=lambda: False,
        runtime=runtime,
    )


def test_gpus_are_those_that_the_driver_reports(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, hourly_usd="0.50")
    found = service(TWO_CARDS, settings).machine(settings)
    assert (found.measured.gpus, found.vram_gb, found.hourly_uusd) == (2, 23, 500_000)
    assert found.gpu_model > 0
    named = service(NAMED_CARD, settings).machine(settings)
    assert (named.measured.gpus, named.gpu_model, named.vram_gb) == (0, 0, 0), "a name is no card"


@pytest.mark.parametrize("offers", [True, False])
def test_the_offer_is_part_of_the_specs_of_a_node_that_offers(tmp_path: Path, offers: bool) -> None:  # noqa: FBT001
    settings = node_settings(tmp_path, leases=offers, hourly_usd="0.50")
    leases = service(TWO_CARDS, settings)
    builder = SpecsBuilder(settings, TWO_CARDS, speed_of=lambda _: None, lease_offer=leases.offer)
    specs = builder.build(BackendSpecs("stub", 1, ()))
    assert (specs.lease_offer is not None) is offers
    if specs.lease_offer is not None:
        assert specs.lease_offer.prices == (LeasePrice(1, 250_000),)


def test_a_new_price_of_the_node_is_one_of_its_leases(tmp_path: Path) -> None:
    leases = service(TWO_CARDS, node_settings(tmp_path))
    offer = leases.offer(node_settings(tmp_path, hourly_usd="1"))
    assert offer.prices == (LeasePrice(1, 500_000),)


def test_an_offer_promises_what_containers_were_proven_to_do(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, leases=True)
    leases = service(TWO_CARDS, settings, runtime=MemoryRuntime(MemoryEngine(), clock=SystemClock(), rng=seeded(1)))
    assert not leases.runs_containers
    leases.containers.ability = RuntimeAbility(engine="podman 4", limits=True, egress=False, disk_kind=1)
    offer = leases.offer(settings)
    assert (leases.runs_containers, offer.runtime, offer.egress, offer.disk_kind) == (True, True, 0, 1)


def test_a_machine_that_was_not_tried_promises_nothing_unless_its_owner_says_so(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, leases=True)
    assert (service(TWO_CARDS, settings).promises, service(TWO_CARDS, settings).offer(settings).runtime) == (
        False,
        False,
    )
    untried = node_settings(tmp_path, leases=True, leases_untried=True)
    assert service(TWO_CARDS, untried).offer(untried).runtime


def test_rules_are_checked_against_the_machine_and_kept(tmp_path: Path) -> None:
    settings = node_settings(tmp_path)
    write_lease_rules(tmp_path, LeaseRules(longest_s=60))
    leases = service(TWO_CARDS, settings)
    assert leases.rules.longest_s == 60
    leases.set_rules(LeaseRules(gpus=1))
    with pytest.raises(InvalidField):
        leases.set_rules(LeaseRules(gpus=3))
    assert leases.rules == read_lease_rules(tmp_path) == LeaseRules(gpus=1)
    offer = leases.offer(settings)
    assert offer.gpus == 1


async def test_it_runs_and_ends_without_a_market(tmp_path: Path) -> None:
    settings = node_settings(tmp_path, leases=True, chain_url="http://127.0.0.1:9")
    leases = service(TWO_CARDS, settings)
    task = asyncio.create_task(leases.run())
    leases.bidder.on_lookup(lookup())
    await until(lambda: leases.bidder.counts["not_ready"])
    status: dict[str, Any] = leases.status()
    assert (status["provider"], status["chain_url"], status["height_from"]) == (None, "http://127.0.0.1:9", "own")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("gateway", "is_dialled"), [("http://127.0.0.1:1", True), ("https://gateway.example", False)])
async def test_validators_on_this_machine_only_beside_a_gateway_on_it(
    tmp_path: Path,
    gateway: str,
    is_dialled: bool,  # noqa: FBT001
) -> None:
    settings = node_settings(tmp_path, gateway_url=gateway, leases=True)
    leases = service(TWO_CARDS, settings)
    peer = ValidatorPeer("0x" + "1" * 40, "http://127.0.0.1:9", 1)
    leases.bidder.on_market(market(validators=(peer,)))
    task = asyncio.create_task(leases.run())
    await until(lambda: [beat["trouble"] for beat in leases.status()["heartbeats"] if beat["trouble"]])
    assert ("not dialled" in leases.status()["heartbeats"][0]["trouble"]) is not is_dialled
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
