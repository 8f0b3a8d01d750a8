"""A model serves soon, is measured completely when nothing disturbs, and never gets a price by a busy moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sparewatt.core.rng import seeded
from sparewatt.node.backends.backend import BackendModel, BadBackendReply
from sparewatt.node.hardware.machine_use import MachineUse
from sparewatt.node.measurement.measurement_schedule import OBSERVATIONS_MAX, REST_RETRY_S, RETRY_S
from sparewatt.node.measurement.model_measurer import Circumstances, ModelMeasurer, describe_speed
from sparewatt.node.measurement.model_speed import SpeedMeter
from sparewatt.node.measurement.speed_record import SpeedFile, SpeedRecord
from sparewatt.protocol.link.node_report import PriceBasis, Speed
from tests.unit.node.measurement.curve_server import CurveServer, VirtualClock
from tests.unit.node.rig import MODEL, backend_model
from tests.waiting import until

CURVE = Speed(
    prefill_tps=20_000.0, decode_tps=150.0, ttft_s=0.02, step_per_job_s=0.0003, prefill_pace=0.9, decode_pace=0.1
)
EXPECTED = PriceBasis(prompt_tps=7770.0, completion_tps=777.0, source="expected")
WARM = backend_model(MODEL, context_length=32_768)


@dataclass
class FakeUse(MachineUse):
    """A machine whose owner plays a game, or not."""

    why: str | None = None

    async def busy_with(self, *, after_work: bool = False) -> str | None:
        del after_work
        return self.why


@dataclass
class Bench:
    clock: VirtualClock
    server: CurveServer
    measurer: ModelMeasurer
    use: FakeUse
    notices: list[str]

    async def first(self, *, is_idle: bool = True, model: BackendModel = WARM) -> bool:
        return await self.measurer.measure_first(model, self._circumstances(is_idle=is_idle))

    async def rest(self, *, is_idle: bool = True, model: BackendModel = WARM) -> bool:
        return await self.measurer.measure_rest(model, self._circumstances(is_idle=is_idle))

    def _circumstances(self, *, is_idle: bool) -> Circumstances:
        return Circumstances(slots=self.server.slots_max, is_idle=is_idle, expected=EXPECTED)

    @property
    def record(self) -> SpeedRecord:
        record = self.measurer.record_of(WARM)
        assert record is not None
        return record

    async def wait(self, seconds: float) -> None:
        passed = asyncio.Event()
        self.clock.call_later(seconds, passed.set)
        await passed.wait()


@asynccontextmanager
async def bench(folder: Path, curve: Speed = CURVE, **more: Any) -> AsyncIterator[Bench]:
    clock, notices, use = VirtualClock(), list[str](), FakeUse()
    server = CurveServer(clock, curve, **more)

    async def others() -> int:
        return len(server.jobs) + server.others

    measurer = ModelMeasurer(
        meter=SpeedMeter(backend=server, clock=clock, rng=seeded(1)),
        records=SpeedFile(folder / "measured.json", SpeedRecord),
        key_of=lambda model: model.id,
        other_requests=others,
        clock=clock,
        notify=notices.append,
        machine_use=use,
    )
    async with clock.running():
        yield Bench(clock, server, measurer, use, notices)


async def test_a_model_can_serve_after_a_second_and_is_measured_completely_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        assert await it.first()
        assert it.clock.now_s() < 1.5
        assert (it.record.is_complete, it.record.quoted_at) == (False, 0.0)
        assert it.measurer.speed_of(WARM) is not None
        assert await it.rest()
        assert it.clock.now_s() < 6.0
        assert it.record.is_complete
        assert it.record.quoted_at > 0
        assert it.measurer.measuring is None
    assert [text.split(": ")[0] for text in it.notices] == [*[f"measuring {MODEL}"] * 3, *[f"measured {MODEL}"] * 2]


async def test_what_was_measured_is_not_measured_again_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        await it.rest()
        asked = len(it.server.bodies)
        assert not await it.first()
        assert not await it.rest()
        assert len(it.server.bodies) == asked


async def test_a_restart_keeps_curve_and_price(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        await it.rest()
        record = it.record
    async with bench(tmp_path) as it:
        assert not await it.first()
        assert not await it.rest()
        assert it.record == record


# on a busy machine


async def test_on_a_busy_machine_a_model_serves_at_the_price_that_such_hardware_has(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.use.why = "the processor is 90% in use"
        assert await it.first()
        assert it.record.is_disturbed
        assert it.measurer.price_basis_of(WARM) == EXPECTED
        await it.wait(RETRY_S)
        assert not await it.rest()
        it.use.why = None
        await it.wait(REST_RETRY_S)
        assert await it.rest()
        assert (it.record.is_disturbed, it.record.is_complete) == (False, True)
        assert it.record.basis.source == "measured"


async def test_a_server_that_others_use_is_measured_so_that_it_can_serve_and_again_later(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.server.others = 1
        assert await it.first(is_idle=False)
        assert it.measurer.price_basis_of(WARM) == EXPECTED
        it.server.others = 0
        await it.wait(RETRY_S)
        assert await it.rest()
        assert it.record.basis.source == "measured"


async def test_a_first_run_during_which_somebody_came_counts_as_disturbed(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        it.server.on_post = lambda: setattr(it.server, "others", 1)
        assert await it.first()
        assert it.record.is_disturbed


async def test_a_sample_beside_a_stranger_is_discarded_and_what_came_before_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        asked = len(it.server.bodies)
        it.server.on_post = lambda: setattr(it.server, "others", int(len(it.server.bodies) >= asked + 2))
        assert await it.rest()
        lengths = len(it.record.runs[-1].prefill)
        assert (it.record.is_complete, lengths) == (False, 2)
        it.server.on_post, it.server.others = (lambda: None), 0
        await it.wait(REST_RETRY_S)
        assert await it.rest()
        assert it.record.is_complete
        assert len(it.record.runs[-1].prefill) == 3


async def test_a_run_at_whose_end_the_machine_was_busy_is_discarded(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        begun = it.record
        it.server.on_post = lambda: setattr(it.use, "why", "the processor is 60% in use")
        assert not await it.rest()
        assert it.record == begun


async def test_counters_that_lag_a_little_are_no_stranger(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        looks = list[int]()

        async def lagging() -> int:
            looks.append(1)
            return len(looks) % 2

        it.measurer.other_requests = lagging
        assert await it.rest()
        assert it.record.is_complete


# jobs go first


async def test_a_job_of_the_network_ends_a_measurement_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        asked = len(it.server.bodies)
        measuring = asyncio.create_task(it.rest())
        await until(lambda: len(it.server.bodies) > asked)
        it.measurer.note_own_jobs(1)
        assert not await measuring
        assert it.server.jobs == [], "its request is cancelled at the server"
        assert not it.record.is_complete
        it.measurer.note_own_jobs(0)
        await it.wait(REST_RETRY_S)
        assert await it.rest()
        assert it.record.is_complete


async def test_the_rest_waits_until_the_node_is_idle(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        assert not await it.rest(is_idle=False)
        assert await it.rest()


# checks


async def test_an_interrupted_check_changes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        await it.rest()
        assert not await it.rest()  # schedules the check
        record = it.record
        await it.wait(61)
        it.server.on_post = lambda: setattr(it.server, "others", 1)
        assert not await it.rest()
        assert it.record == record


async def test_a_curve_that_jobs_disagree_with_is_measured_again_and_forgotten(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.first()
        await it.rest()
        await it.rest()
        it.server.curve = msgspec.structs.replace(CURVE, decode_tps=50.0)
        for _ in range(OBSERVATIONS_MAX):
            it.measurer.observe(WARM, "writing", seen_s=0.02, expected_s=0.0067)
        await it.wait(601)
        assert await it.rest()
        assert abs(it.record.speed.decode_tps - 50) < 5
        assert len(it.record.runs) == 1


async def test_jobs_as_the_curve_says_change_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        for _ in range(3):
            await it.first()
            await it.rest()
        asked = len(it.server.bodies)
        for _ in range(OBSERVATIONS_MAX):
            it.measurer.observe(WARM, "writing", seen_s=0.008, expected_s=0.0067)
        await it.wait(30)
        assert not await it.rest()
        assert len(it.server.bodies) == asked


# servers that fail, and other models


async def test_a_server_that_fails_is_tried_again_later_and_not_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, context=1) as it:
        assert not await it.first()
        assert not it.measurer.is_measured(WARM)
        it.server.context = 1 << 20
        assert not await it.first()
        await it.wait(RETRY_S)
        assert await it.first()


async def test_a_server_that_stops_counting_interrupts_the_rest(tmp_path: Path) -> None:
    async def broken() -> int:
        raise BadBackendReply("no metrics")

    async with bench(tmp_path) as it:
        await it.first()
        begun, it.measurer.other_requests = it.record, broken
        assert not await it.rest()
        assert it.record == begun


async def test_a_model_that_only_embeds_is_complete_after_the_first_run(tmp_path: Path) -> None:
    embedder = backend_model(MODEL, capabilities=("embeddings",), context_length=8192)
    async with bench(tmp_path) as it:
        assert await it.first(model=embedder)
        assert it.record.is_complete
        assert it.notices[0] == f"measuring {MODEL}: reads (1 of 1)"
        assert not await it.rest(model=embedder)
        await it.wait(61)
        asked = len(it.server.bodies)
        await it.rest(model=embedder)
        assert len(it.server.bodies) > asked


def test_speeds_are_described_in_a_line() -> None:
    fast = msgspec.structs.replace(CURVE, batch=16, batch_decode_tps=1400.0)
    assert describe_speed(fast) == "reads 1,000 tokens in 70 ms, writes 150 tokens/s, 1,400 with 16 at once"
    slow = Speed(prefill_tps=400.0, decode_tps=4.26)
    assert describe_speed(slow) == "reads 1,000 tokens in 2.5 s, writes 4.3 tokens/s"
