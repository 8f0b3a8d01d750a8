"""What is found out about models by asking, which of those on disk are loaded for it, and how it all is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.machine.spawn import free_port
from sparewatt.node.backends.backend import BackendError, BackendModel, BadBackendReply
from sparewatt.node.backends.capability_probe import has_evidence, probe_capabilities
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.backends.probed_capabilities import PROBES_MAX, ProbedCapabilities
from sparewatt.node.hardware.gpu import DetectedGpu, Hardware
from sparewatt.node.hardware.gpu_bench import GpuSpeed
from sparewatt.node.measurement.chat_speed import measure_chat_model
from sparewatt.node.measurement.embedding_speed import measure_embedding_model
from sparewatt.node.measurement.measurement_schedule import LOADED_MAX, may_load
from sparewatt.node.specs.gpu_speed import measure_gpu
from sparewatt.node.specs.specs_builder import BackendSpecs, SpecsBuilder
from sparewatt.protocol.link.node_report import Capability, NodeLoad, NodeSpecs, Speed, validated
from sparewatt.testing import EngineSettings
from tests.unit.node.rig import HARDWARE, MODEL, ScriptedBackend, node_settings, rigged

ALL: tuple[Capability, ...] = ("completions", "embeddings", "tools", "json_schema", "logprobs")


def model(name: str = MODEL, state: Any = "warm", **changes: Any) -> BackendModel:
    given: dict[str, Any] = {"context_length": 4096, "quantization": None, "weights_bytes": 10**9}
    given |= {"kv_bytes_per_token": 1000, "parameters": 10**9} | changes
    return BackendModel(name, state, **given)


# trying


async def test_a_server_that_can_do_everything_is_found_to(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        assert await probe_capabilities(rig.backend, MODEL, ALL) == ALL


@pytest.mark.parametrize("answer", [b"", b"no JSON", b"[]", b"{}", b'{"choices":[{}]}', b'{"choices":[{"text":7}]}'])
async def test_a_server_that_ignores_what_it_is_asked_for_is_not_believed(answer: bytes) -> None:
    backend = ScriptedBackend([answer], content_type="application/json")
    assert await probe_capabilities(backend, MODEL, ALL) == ()


async def test_a_refusal_and_a_crash_are_no_abilities() -> None:
    async with aiohttp.ClientSession() as session:
        gone = OpenAIBackend(f"http://127.0.0.1:{free_port()}", session)
        with pytest.raises(BackendError):
            await probe_capabilities(gone, MODEL, ALL)
    assert await probe_capabilities(ScriptedBackend(status=501), MODEL, ALL) == ()


async def test_a_server_that_does_not_answer_is_asked_again_but_not_for_ever() -> None:
    asked = list[str]()

    async def find(one: BackendModel) -> tuple[Capability, ...]:
        asked.append(one.id)
        if len(asked) == 1:
            raise BadBackendReply("busy")
        return ("tools",)

    async def never(one: BackendModel) -> tuple[Capability, ...]:
        asked.append(one.id)
        raise BadBackendReply("gone")

    embedder = model(capabilities=("embeddings",))
    abilities = ProbedCapabilities(ScriptedBackend(), find)
    assert [await abilities.probe(embedder) for _ in range(3)] == [False, True, False]
    assert abilities.of(embedder) == ("tools",)
    asked.clear()
    hopeless = ProbedCapabilities(ScriptedBackend(), never)
    assert not any([await hopeless.probe(embedder) for _ in range(9)])
    assert len(asked) == PROBES_MAX


def test_text_that_only_looks_like_a_call_is_none() -> None:
    said = {"choices": [{"message": {"content": 'say({"yes": true})', "tool_calls": None}}]}
    assert not has_evidence("tools", said)
    assert not has_evidence("json_schema", {"choices": [{"message": {"content": "yes"}}]})
    assert not has_evidence("json_schema", {"choices": [{"message": {"content": '{"yes": true, "no": 1}'}}]})
    assert not has_evidence("logprobs", {"choices": [{"logprobs": None}]})
    assert not has_evidence("chat", {})


# measuring


async def test_a_server_is_measured_at_its_own_concurrency(tmp_path: Path) -> None:
    stages = list[str]()
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), slots=6)) as rig:
        speed = await measure_chat_model(
            rig.backend, MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1), at_once=6, progress=stages.append
        )
    assert speed.batch == 6
    assert speed.batch_decode_tps
    assert speed.batch_ttft_s is not None
    assert stages == ["writes alone (1 of 3)", "reads (2 of 3)", "writes 6 at once (3 of 3)"]


@pytest.mark.parametrize(("slots", "at_once"), [(1, 2), (2, 2), (500, 16)])
async def test_at_least_two_and_at_most_sixteen_at_once(tmp_path: Path, slots: int, at_once: int) -> None:
    async with rigged(tmp_path) as rig:
        speed = await measure_chat_model(
            rig.backend, MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1), at_once=slots
        )
    assert speed.batch == at_once


async def test_a_model_that_only_embeds_is_timed_by_what_it_reads(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        speed = await measure_embedding_model(rig.backend, MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1))
        assert speed.prefill_tps == speed.decode_tps > 0
        await rig.fault("status")
        with pytest.raises(BadBackendReply):
            await measure_embedding_model(rig.backend, MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1))
    with pytest.raises(BadBackendReply):
        await measure_embedding_model(
            ScriptedBackend([b"nonsense"]), MODEL, limit_tps=None, clock=SystemClock(), rng=seeded(1)
        )


def can_load(one: BackendModel, models: list[BackendModel], measured: set[str], vram: int = 10**10) -> bool:
    return may_load(one, models, vram_bytes=vram, is_measured=lambda each: each.id in measured)


def test_models_on_disk_are_loaded_to_be_measured_if_they_fit_and_nothing_else_waits() -> None:
    disk = [model(f"d{number}", "on_disk") for number in range(8)]
    assert can_load(disk[0], disk, set())
    assert not can_load(disk[0], disk, set(), vram=10**9), "it does not fit"
    assert not can_load(disk[0], [*disk, model("w")], set()), "one that is loaded comes first"
    assert can_load(disk[0], [*disk, model("w")], {"w"})
    measured = {each.id for each in disk[:LOADED_MAX]}
    assert not can_load(disk[-1], disk, measured), "few at all"
    assert not can_load(model("l", "loading"), [], set())


# reporting


def reporter(tmp_path: Path, **changes: Any) -> SpecsBuilder:
    given: dict[str, Any] = {"settings": node_settings(tmp_path), "hardware": HARDWARE, "speed_of": lambda _: None}
    return SpecsBuilder(**(given | changes))


def test_abilities_are_what_is_told_and_what_was_found(tmp_path: Path) -> None:
    told = reporter(tmp_path, probed_capabilities=lambda _: ("tools", "chat"))
    assert told.model_report(model()).capabilities == ("chat", "tools")
    assert told.model_report(model(capabilities=("embeddings",))).capabilities == ("embeddings", "tools", "chat")
    assert reporter(tmp_path).model_report(model()).capabilities is None


def test_each_gpu_is_reported_and_the_first_with_what_it_reached(tmp_path: Path) -> None:
    gpus = (DetectedGpu("nvidia", "H200\n", 10**11, "580"), DetectedGpu("nvidia", "H200", 10**11))
    hardware = Hardware("H200", 2, 2 * 10**11, 100.0, gpus)
    speed = GpuSpeed(by="torch", copy_bytes_s=4.1e12, fp16_tflops=755.0)
    specs = reporter(tmp_path, hardware=hardware, gpu_speed=speed).build(BackendSpecs("vllm", 8, [model()]))
    assert validated(specs) == specs
    assert [(gpu.model, gpu.copy_bytes_s) for gpu in specs.gpus] == [("H200", 4.1e12), ("H200", None)]
    assert (specs.tflops_measured, specs.bandwidth_bytes_s) == (755.0, None)


async def test_the_gpu_is_measured_once_for_each_card_and_driver(tmp_path: Path) -> None:
    said, benched = list[str](), list[int]()

    async def bench() -> GpuSpeed:
        benched.append(1)
        return GpuSpeed(by="torch", copy_bytes_s=4.1e12, fp16_tflops=755.0)

    for _ in range(2):
        async with rigged(tmp_path) as rig:
            hardware = Hardware("H200", 1, 10**11, 60.0, (DetectedGpu("nvidia", "H200", 10**11, "580"),))
            rig.inventory._specs_builder = SpecsBuilder(rig.inventory.settings, hardware, speed_of=lambda _: None)
            rig.inventory._publish()
            await measure_gpu(rig.inventory, tmp_path, tell=said.append, bench=bench)
            assert rig.inventory.specs.gpus[0].fp16_tflops == 755.0
    assert benched == [1]
    assert said == ["measuring H200 …", "measured H200: copies 4.10 TB/s, 755 TFLOP/s"]


async def test_a_machine_without_a_gpu_is_not_measured_and_a_failure_is_told(tmp_path: Path) -> None:
    said = list[str]()

    async def bench() -> GpuSpeed:
        return GpuSpeed(why_not="torch sees no GPU")

    async with rigged(tmp_path) as rig:
        await measure_gpu(rig.inventory, tmp_path, tell=said.append, bench=bench)
        assert said == []
        hardware = Hardware("H200", 1, 10**11, 60.0, (DetectedGpu("nvidia", "H200", 10**11, "580"),))
        rig.inventory._specs_builder = SpecsBuilder(rig.inventory.settings, hardware, speed_of=lambda _: None)
        rig.inventory._publish()
        await measure_gpu(rig.inventory, tmp_path, tell=said.append, bench=bench)
    assert said[-1] == "H200 itself is not measured: torch sees no GPU"
    assert not (tmp_path / "gpu.json").exists()


# old and new together

OLD_LOAD = b'{"running":1,"queued":0,"foreign":0,"draining":true}'


def test_a_report_of_an_older_agent_is_understood() -> None:
    load = msgspec.json.decode(OLD_LOAD, type=NodeLoad)
    assert (load.draining, load.paused, load.sensors, load.kv_used) == (True, None, None, None)
    speed = msgspec.json.decode(b'{"prefill_tps":1.0,"decode_tps":1.0}', type=Speed)
    assert speed.batch is None


def test_a_report_of_a_newer_agent_is_understood_by_an_older_gateway(tmp_path: Path) -> None:
    """Which knows none of the new fields, and leaves them out."""

    class OldLoad(msgspec.Struct):
        running: int = 0
        draining: bool = False

    class OldSpecs(msgspec.Struct):
        name: str
        gpu_count: int

    gpus = (DetectedGpu("nvidia", "H200", 10**11, "580"),)
    specs = reporter(tmp_path, hardware=Hardware("H200", 1, 10**11, 1.0, gpus)).build(BackendSpecs("x", 1, [model()]))
    assert msgspec.json.decode(msgspec.json.encode(specs), type=OldSpecs).gpu_count == 1
    paused = msgspec.json.encode(NodeLoad(running=2, draining=True, paused="hot"))
    assert msgspec.json.decode(paused, type=OldLoad).draining
    assert isinstance(specs, NodeSpecs)
