"""The owner's commands in a running agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparewatt.core.rng import seeded
from sparewatt.node.agent import NodeAgent
from sparewatt.node.hardware.gpu import DetectedGpu
from sparewatt.node.hardware.sensor_sampler import SensorSampler
from sparewatt.node.jobs.receipt_issuer import ReceiptIssuer
from sparewatt.node.leases.lease_service import LeaseService
from sparewatt.node.leases.rules_file import read_lease_rules
from sparewatt.node.owner.owner_control import OwnerControl
from sparewatt.node.owner.owner_rules import UNTIL_RESUMED_UNIX_S, OwnerRules, read_owner_rules
from sparewatt.node.settings import read_saved_settings
from sparewatt.protocol.link.frames import NodeKeyRequest
from sparewatt.protocol.link.node_report import GpuReading
from sparewatt.protocol.signing import SigningKey
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import HARDWARE, MODEL, Rig, rigged
from tests.waiting import turns, until

KEY = SigningKey.generate(rng=seeded(1))


class FakeGpuProbe:
    """One card whose temperature a test sets."""

    celsius = 40.0

    def gpus(self) -> list[DetectedGpu]:
        return [DetectedGpu("nvidia", "card", 10**9)]

    def read(self) -> list[GpuReading]:
        return [GpuReading(temperature_c=self.celsius, power_watts=100.0)]


class ControlledNode:
    def __init__(self, rig: Rig, tmp_path: Path) -> None:
        self.clock, self.probe, self.stop, self.notices = ManualClock(), FakeGpuProbe(), asyncio.Event(), list[str]()
        self.rig = rig
        self.sampler = SensorSampler(self.probe, None, clock=self.clock)
        self.sampler.sample()
        self.agent = NodeAgent(
            settings=rig.inventory.settings,
            key=KEY,
            inventory=rig.inventory,
            jobs=rig.jobs,
            receipts=ReceiptIssuer(tmp_path, KEY, clock=self.clock),
            session=rig.session,
            clock=self.clock,
            rng=seeded(1),
            notify=self.notices.append,
            sampler=self.sampler,
        )
        self.control = OwnerControl(
            backend_url=rig.url,
            agent=self.agent,
            sampler=self.sampler,
            rules=OwnerRules(),
            leases=LeaseService(
                HARDWARE,
                settings=rig.inventory.settings,
                key=KEY,
                clock=self.clock,
                rng=seeded(1),
                notify=self.notices.append,
                current_settings=lambda: rig.inventory.settings,
                is_paused=lambda: False,
            ),
            clock=self.clock,
            notify=self.notices.append,
            stop=self.stop,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        return self.control.answer(msgspec.json.encode(question))


@asynccontextmanager
async def controlled_node(tmp_path: Path) -> AsyncIterator[ControlledNode]:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        yield ControlledNode(rig, tmp_path)


async def test_status_describes_the_node(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        status = here.ask(do="status")["status"]
    assert (status["id"], status["state"], status["slots"]) == (KEY.address, "offline", 8)
    assert [model["id"] for model in status["models"]] == [MODEL]
    assert status["power_watts"] == 100.0


async def test_status_has_the_source_of_each_figure_of_the_server(tmp_path: Path) -> None:
    async with rigged(tmp_path, server_facts="kv-tokens=35312") as rig:
        here = ControlledNode(rig, tmp_path)
        assert here.ask(do="status")["status"]["server"]["facts"] is None, "nothing was asked of it yet"
        await rig.inventory.refresh()
        facts = here.ask(do="status")["status"]["server"]["facts"]
    assert facts["slots"] == {"value": 8, "source": "server"}
    assert facts["kv_tokens"] == {"value": 35312, "source": "owner"}
    assert [model["id"] for model in facts["models"]] == [MODEL]
    assert facts["models"][0]["kv_bytes_per_token"]["source"] == "share of weights"


async def test_a_pause_lets_running_answers_end_and_takes_nothing_new(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        rig = here.rig
        await rig.fault("stall_after_tokens", after_tokens=2)
        rig.send(1)
        await until(lambda: rig.data(1) != b"")
        here.ask(do="wish", wishes={"paused_until_unix_s": UNTIL_RESUMED_UNIX_S})
        rig.send(2)
        refused = await rig.failed(2)
        assert (refused.code, refused.load and refused.load.paused) == ("refused", "its owner paused it")
        assert rig.jobs.count() == 1, "what ran goes on"
        here.ask(do="wish", wishes={})
        rig.send(3)
        await rig.ended(3)
        assert read_owner_rules(tmp_path) == OwnerRules()
    assert [text for text in here.notices if "paused" in text] == ["paused: its owner paused it; 1 running first"]


async def test_heat_pauses_the_node_and_is_reported_to_the_gateway(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        here.ask(do="wish", wishes={"temperature_max_c": 80})
        await turns()
        news = asyncio.create_task(here.rig.inventory.wait_load_changed(here.rig.inventory.load_version))
        await turns()
        here.probe.celsius = 85.0
        here.sampler.sample()
        here.control.check_pauses()
        await until(news.done)
        load = here.rig.jobs.load()
        assert (load.draining, load.paused) == (True, "it is too hot (its owner's ceiling is 80 °C)")
        here.probe.celsius = 60.0
        here.clock.advance(61)
        here.sampler.sample()
        here.control.check_pauses()
        assert here.rig.jobs.load().paused is None


async def test_a_joined_node_without_its_model_server_is_not_online(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        assert here.ask(do="status")["status"]["state"] == "offline"
        here.agent.joined_unix_s = 1.0
        assert here.ask(do="status")["status"]["state"] == "online"
        here.rig.inventory.trouble = "/v1/models did not answer"
        assert here.ask(do="status")["status"]["state"] == "no_server"


async def test_status_has_prices_per_token_as_they_were_set(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        assert here.ask(do="status")["status"]["prompt_usd_per_mtok"] is None
        status = here.ask(do="price", prompt_usd_per_mtok="0.5", completion_usd_per_mtok="1")["status"]
        assert (status["prompt_usd_per_mtok"], status["completion_usd_per_mtok"]) == ("0.5", "1")


async def test_prices_change_without_a_restart_and_are_saved(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        before = here.rig.inventory.specs.models[0].completion_price_nano
        here.ask(do="price", hourly_usd="0.40")
        after = here.rig.inventory.specs
        assert after.hourly_price_nano == 400_000_000
        assert after.models[0].completion_price_nano == pytest.approx(4 * before, rel=0.1)  # two digits, rounded twice
        here.ask(do="price", prompt_usd_per_mtok="1", completion_usd_per_mtok="2")
        assert here.rig.inventory.specs.models[0].completion_price_nano == 2 * 10**9
        assert read_saved_settings(tmp_path).completion_usd_per_mtok == "2"
        here.ask(do="price", hourly_usd="0.50")
        assert read_saved_settings(tmp_path).completion_usd_per_mtok is None


@pytest.mark.parametrize(
    "question",
    [
        {"do": "price", "hourly_usd": "0,10"},
        {"do": "price", "hourly_usd": "2000000"},
        {"do": "explode"},
        {"do": "wish", "wishes": {"watts_max": -1}},
        {"do": "status", "more": 1},
    ],
)
async def test_an_invalid_command_is_answered_with_an_error_and_changes_nothing(
    tmp_path: Path, question: dict[str, Any]
) -> None:
    async with controlled_node(tmp_path) as here:
        specs = here.rig.inventory.specs
        assert here.ask(**question)["error"]
        assert here.rig.inventory.specs == specs
        assert not (tmp_path / "wishes.json").exists()


async def test_drain_sets_the_stop_event_of_the_process(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        here.ask(do="drain")
        assert here.stop.is_set()


async def test_an_owner_who_wants_the_machine_back_offers_nothing_until_it_is_called_off(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        here.ask(do="leases", leases=True)
        before = here.control.leases.offer(here.rig.inventory.settings)
        leaving = here.ask(do="leave", leave_by_unix_s=5_000.0)["status"]["lease_market"]["departure"]
        assert leaving == {"by": 5_000.0, "leases": []}
        assert here.control.leases.offer(here.rig.inventory.settings).cpu_milli == 0
        assert here.control.leases.bidder.is_paused()
        assert not here.stop.is_set(), "the agent goes on: its leases have to be held until they have left"
        assert "error" in here.ask(do="leave", leave_by_unix_s=-1)
        off = here.ask(do="leave")["status"]["lease_market"]["departure"]
        assert (off["by"], here.control.leases.offer(here.rig.inventory.settings)) == (None, before)
        assert not here.control.leases.bidder.is_paused()


async def test_leases_are_offered_and_saved_before_they_take_effect(tmp_path: Path) -> None:
    wallet = "0x" + "7" * 40
    async with controlled_node(tmp_path) as here:
        assert here.ask(do="status")["status"]["leases"] is False
        status = here.ask(do="leases", leases=True, lease_wallet=wallet)["status"]
        assert (status["leases"], status["lease_wallet"]) == (True, wallet)
        saved = (here.rig.inventory.specs.leases, read_saved_settings(tmp_path).leases)
        here.ask(do="leases", leases=False)
        forgotten = (here.rig.inventory.specs.leases, read_saved_settings(tmp_path).leases)
        assert "error" in here.ask(do="leases", leases=True, lease_wallet="0x12")
    assert (saved, forgotten) == ((True, True), (False, None))


async def test_the_agent_signs_only_what_its_owner_allows_now(tmp_path: Path) -> None:
    request = NodeKeyRequest(31337, "0x" + "a" * 40, "0x" + "b" * 40)
    async with controlled_node(tmp_path) as here:
        assert here.agent._sign_node_key(request).signature is None
        here.ask(do="leases", leases=True)
        assert here.agent._sign_node_key(request).signature is not None
        here.ask(do="leases", leases=True, lease_wallet="0x" + "c" * 40)
        assert here.agent._sign_node_key(request).signature is None
    assert [text for text in here.notices if "provider" in text] == [
        f"serves leases as the provider {request.provider}"
    ]


async def test_rules_of_leases_are_saved_and_offered(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        rules = {"longest_s": 7200, "cpu_hourly_uusd": 5_000, "cpu_milli": 1_000}
        status = here.ask(do="lease_offer", leases=True, lease_rules=rules)["status"]
        assert status["leases"] is True
        assert status["lease_market"]["rules"] == rules
        assert status["lease_market"]["offer"]["cpu_milli"] == 1_000
        assert read_saved_settings(tmp_path).leases is True
        assert read_lease_rules(tmp_path).longest_s == 7_200
        off = here.ask(do="lease_offer", leases=False)["status"]
        assert (off["leases"], off["lease_market"]["rules"]) == (False, rules), "rules outlast an offer"


async def test_rules_that_the_machine_cannot_keep_change_nothing(tmp_path: Path) -> None:
    async with controlled_node(tmp_path) as here:
        answer = here.ask(do="lease_offer", leases=True, lease_rules={"gpus": 3})
        assert "has 0 GPUs" in answer["error"]
        assert here.ask(do="status")["status"]["leases"] is False
        assert read_lease_rules(tmp_path).gpus is None
