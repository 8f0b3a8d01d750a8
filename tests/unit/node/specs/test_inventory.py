from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sparewatt.core.errors import InvalidAmount, StartupError
from sparewatt.node.backends.backend import BackendError, BackendModel, BackendTimeout, BadBackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.measurement.speed_fit import SpeedSamples
from sparewatt.node.measurement.speed_record import Run, updated
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder
from sparewatt.protocol.link.node_report import Speed, validated
from sparewatt.testing import EngineSettings
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import MODEL, Rig, chat_body, rigged
from tests.waiting import turns, until


def models_of(rig: Rig) -> list[str]:
    return [model.id for model in rig.inventory.specs.models]


async def test_before_the_first_refresh_a_node_has_no_models(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        assert models_of(rig) == []
        assert validated(rig.inventory.specs) == rig.inventory.specs


async def test_what_the_server_lists_is_reported_measured_and_priced(tmp_path: Path) -> None:
    engine = EngineSettings(models=("one", "two"), slots=3, n_ctx=4096, n_params=10**9)
    async with rigged(tmp_path, engine=engine, name="attic", region="eu-west") as rig:
        await rig.inventory.refresh()
        specs = rig.inventory.specs
    assert validated(specs) == specs
    assert (specs.name, specs.region, specs.slots) == ("attic", "eu-west", 3)
    assert [model.id for model in specs.models] == ["one", "two"]
    assert all(model.measured and model.completion_price_nano > 0 for model in specs.models)
    assert specs.models[0].context_length == 4096
    assert specs.models[0].claimed is not None
    assert specs.tflops_measured is not None


async def test_a_model_is_measured_once_even_over_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with rigged(tmp_path) as rig:
            await rig.inventory.refresh()
            await rig.inventory.refresh()
            assert rig.inventory.specs.models[0].measured is not None
            notices = rig.notices
    assert notices == []


async def test_another_speed_limit_is_measured_again(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
    async with rigged(tmp_path, speed_limit_tps=1e5) as rig:
        await rig.inventory.refresh()
        assert any(text.startswith("measured") for text in rig.notices)


async def test_a_model_that_cannot_be_measured_is_tried_again_later_and_not_at_once(tmp_path: Path) -> None:
    clock = ManualClock()
    async with rigged(tmp_path, clock=clock) as rig:
        await rig.fault("status", count=2)  # the first is for the probe
        for _ in range(3):
            await rig.inventory.refresh()
        assert rig.notices == [f"measuring {MODEL}: writes alone (1 of 3)"]
        assert rig.inventory.specs.models[0].measured is None
        clock.advance(61)
        await rig.inventory.refresh()
        assert rig.inventory.specs.models[0].measured is not None


def crowd(rig: Rig) -> Speed:
    """Replace what was measured by what a crowded machine would have shown."""
    inventory = rig.inventory
    slow = SpeedSamples(prefill=((200.0, 200.0),), decode=((1, 30.0, 1.0),))
    run = Run(samples=slow, is_complete=True)
    record = updated(None, run, slots=8, expected=None, now_unix_s=1_700_000_000.0)
    inventory._measurer.records.put(inventory._key(inventory._models[0]), record)
    return record.speed


async def test_an_idle_node_measures_again_and_keeps_the_better_figure(tmp_path: Path) -> None:
    clock = ManualClock()
    async with rigged(tmp_path, clock=clock) as rig:
        await rig.inventory.refresh()
        crowded = crowd(rig)
        await rig.inventory.refresh()
        assert rig.inventory.specs.models[0].measured == crowded
        price = rig.inventory.specs.models[0].completion_price_nano
        clock.advance(61)
        await rig.inventory.refresh()
        better = rig.inventory.specs.models[0]
        assert better.measured is not None
        assert better.measured.decode_tps > crowded.decode_tps
        assert better.completion_price_nano == price, "it is quoted for an hour"


@pytest.mark.parametrize("busy_with", ["mine", "strangers"])
async def test_a_busy_node_does_not_measure_again(tmp_path: Path, busy_with: str) -> None:
    clock = ManualClock()
    async with rigged(tmp_path, clock=clock) as rig:
        await rig.inventory.refresh()
        crowded = crowd(rig)
        await rig.inventory.refresh()
        clock.advance(61)
        await rig.fault("stall_after_tokens", after_tokens=1)
        async with rig.session.post(f"{rig.url}/v1/chat/completions", data=chat_body()):
            if busy_with == "mine":
                rig.inventory.own_jobs = 1
            await rig.inventory.refresh()
        assert rig.inventory.specs.models[0].measured == crowded


async def test_what_jobs_took_is_compared_for_models_that_are_there(tmp_path: Path) -> None:
    clock = ManualClock()
    async with rigged(tmp_path, clock=clock) as rig:
        for wait_s in (0, 0, 61, 601):  # the next check is an hour later
            clock.advance(wait_s)
            await rig.inventory.refresh()
        checked = (await rig.stats())["started"]
        for _ in range(20):
            rig.inventory.observe("unknown", "writing", seen_s=9.0, expected_s=1.0)
        clock.advance(601)
        await rig.inventory.refresh()
        assert (await rig.stats())["started"] == checked
        for _ in range(20):
            rig.inventory.observe(MODEL, "writing", seen_s=9.0, expected_s=1.0)
        await rig.inventory.refresh()
        assert (await rig.stats())["started"] > checked


async def test_checks_of_a_figure_come_to_an_end(tmp_path: Path) -> None:
    clock = ManualClock()
    async with rigged(tmp_path, clock=clock) as rig:
        await rig.inventory.refresh()
        jobs_started = list[int]()
        for _ in range(6):
            clock.advance(4000)
            await rig.inventory.refresh()
            jobs_started.append((await rig.stats())["started"])
    assert jobs_started[0] < jobs_started[3] == jobs_started[-1]


async def test_a_model_that_no_gateway_would_take_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    engine = EngineSettings(models=("two words", "good", "m" * 300))
    async with rigged(tmp_path, engine=engine) as rig:
        await rig.inventory.refresh()
        assert models_of(rig) == ["good"]
        assert validated(rig.inventory.specs) == rig.inventory.specs
        assert not any("two words" in text for text in rig.notices)


async def test_models_go_and_come_back_with_their_server(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        base, rig.backend._base = rig.backend._base, "http://127.0.0.1:1"
        await rig.inventory.refresh()
        assert models_of(rig) == []
        rig.backend._base = base
        await rig.inventory.refresh()
        assert models_of(rig) == [MODEL]


async def test_only_a_change_of_specs_is_signalled(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        waiting = asyncio.create_task(rig.inventory.wait_specs_changed())
        await turns()
        await rig.inventory.refresh()
        await turns()
        assert not waiting.done()
        rig.backend._base = "http://127.0.0.1:1"
        await rig.inventory.refresh()
        async with asyncio.timeout(20):
            await waiting


async def test_refresh_soon_does_not_wait_for_the_next_poll(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        lost = list[str]()
        running = asyncio.create_task(rig.inventory.run(on_backend_lost=lost.append))
        async with asyncio.timeout(20):
            while rig.inventory._refresh_wanted.is_set() or not models_of(rig):  # noqa: ASYNC110 (it lies behind HTTP)
                await asyncio.sleep(0.005)
            rig.backend._base = "http://127.0.0.1:1"
            while models_of(rig):
                rig.inventory.refresh_soon()
                await asyncio.sleep(0.005)
            await until(lambda: lost)
        running.cancel()
        await asyncio.wait([running])


async def test_absurd_speeds_make_no_absurd_report(tmp_path: Path) -> None:
    huge = BackendModel(MODEL, "warm", 8192, None, 1 << 49, 1 << 20, parameters=10**15)
    async with rigged(tmp_path) as rig:
        rig.inventory._backend_specs = BackendSpecs("openai", 1, [huge])
        await rig.inventory._measure_due()
        assert validated(rig.inventory.specs) == rig.inventory.specs


# what the owner set


@pytest.mark.parametrize("change", [{"region": ""}, {"region": "a\nb"}, {"name": "n" * 101}, {"hourly_usd": "2000000"}])
async def test_settings_that_no_gateway_would_take_stop_the_start(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(StartupError, match=next(iter(change)).removesuffix("_usd")):
        async with rigged(tmp_path, **change):
            pass


@pytest.mark.parametrize("field", ["hourly_usd", "prompt_usd_per_mtok", "completion_usd_per_mtok"])
async def test_a_price_with_a_typo_stops_the_start(tmp_path: Path, field: str) -> None:
    typo: dict[str, Any] = {field: "0,10"}
    with pytest.raises(InvalidAmount):
        async with rigged(tmp_path, **typo):
            pass


# slots


async def test_slots_that_a_server_reports_later_are_used_then() -> None:
    """llama.cpp answers 503 while it loads."""
    answers = [web.Response(status=503), web.json_response({"total_slots": 16}), web.Response(status=503)]

    async def props(_: web.Request) -> web.Response:
        return answers.pop(0)

    app = web.Application()
    app.add_routes([web.get("/props", props)])
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        backend = OpenAIBackend(str(server.make_url("/")), session)
        assert [await backend.slots() for _ in range(3)] == [None, 16, 16]


@pytest.mark.parametrize(
    ("jobs", "failure", "looks"), [(1, BackendTimeout, 2), (0, BackendTimeout, 1), (1, BadBackendReply, 1)]
)
async def test_a_server_with_jobs_may_be_slow_to_answer_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, failure: type[BackendError], looks: int
) -> None:
    async with rigged(tmp_path) as rig:
        await rig.inventory.refresh()
        rig.inventory.own_jobs = jobs

        async def models(_: OpenAIBackend) -> list[BackendModel]:
            raise failure("no answer")

        monkeypatch.setattr(OpenAIBackend, "models", models)
        for look in range(1, looks + 1):
            await rig.inventory.refresh()
            assert bool(rig.inventory.trouble) == (look == looks)
        assert models_of(rig) == []


async def test_the_gpu_is_measured_once_for_each_card_and_driver(tmp_path: Path) -> None:
    notices, benched = list[str](), list[int]()

    async def bench() -> GpuSpeed:
        benched.append(1)
        return GpuSpeed(by="torch", copy_bytes_s=4.1e12, fp16_tflops=755.0)

    for _ in range(2):
        async with rigged(tmp_path) as rig:
            hardware = Hardware("H200", 1, 10**11, 60.0, (DetectedGpu("nvidia", "H200", 10**11, "580"),))
            rig.inventory._specs_builder = SpecsBuilder(rig.inventory.settings, hardware, speed_of=lambda _: None)
            rig.inventory._publish()
            await rig.inventory.measure_gpu(bench=bench)
            assert rig.inventory.specs.gpus[0].fp16_tflops == 755.0
            notices += rig.notices
    assert benched == [1]
    assert notices == ["measuring H200 …", "measured H200: copies 4.10 TB/s, 755 TFLOP/s"]


async def test_a_machine_without_a_gpu_is_not_benchmarked_and_a_failure_is_shown(tmp_path: Path) -> None:
    async def bench() -> GpuSpeed:
        return GpuSpeed(why_not="torch sees no GPU")

    async with rigged(tmp_path) as rig:
        await rig.inventory.measure_gpu(bench=bench)
        assert rig.notices == []
        hardware = Hardware("H200", 1, 10**11, 60.0, (DetectedGpu("nvidia", "H200", 10**11, "580"),))
        rig.inventory._specs_builder = SpecsBuilder(rig.inventory.settings, hardware, speed_of=lambda _: None)
        rig.inventory._publish()
        await rig.inventory.measure_gpu(bench=bench)
    assert rig.notices[-1] == "H200 itself is not measured: torch sees no GPU"
    assert not (tmp_path / "gpu.json").exists()


async def test_a_node_at_rest_measures_nothing_and_begins_when_it_wakes(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        rig.inventory.rest()
        await rig.inventory.refresh()
        assert models_of(rig) == [MODEL]
        assert rig.inventory.specs.models[0].measured is None
        rig.inventory.wake()
        await rig.inventory.refresh()
        assert rig.inventory.specs.models[0].measured is not None
