"""What the meter finds on a server whose speed is known exactly, and what it does not ask of a slow one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.rng import seeded
from sparewatt.node.backends.backend import Backend, BackendReply, BackendUnreachable, BadBackendReply
from sparewatt.node.measurement import model_speed
from sparewatt.node.measurement.job_timing import JobTiming
from sparewatt.node.measurement.model_speed import (
    BATCH_MAX,
    SpeedMeter,
    batch_size,
    context_samples,
    is_embedding_only,
    next_length,
    shared_sample,
)
from sparewatt.node.measurement.speed_fit import SpeedSamples, fit_speed
from sparewatt.protocol.link.node_report import Speed, validated
from sparewatt.testing import EngineSettings, InstantClock
from tests.unit.node.measurement.curve_server import CurveServer, VirtualClock
from tests.unit.node.rig import MODEL, rigged

GPU = Speed(
    prefill_tps=20_000.0,
    decode_tps=150.0,
    ttft_s=0.025,
    prefill_square_s=1e-9,
    step_per_job_s=0.0003,
    prefill_pace=0.9,
    decode_pace=0.1,
)
CPU = Speed(prefill_tps=120.0, decode_tps=8.0, ttft_s=0.1, step_per_job_s=0.05, prefill_pace=0.6, decode_pace=0.3)


async def complete_run(
    server: CurveServer, clock: VirtualClock, *, at_once: int = 64, context_length: int | None = None
) -> SpeedSamples:
    meter = SpeedMeter(backend=server, clock=clock, rng=seeded(1))
    run = await meter.quick(MODEL, at_once=at_once)

    async def keep(samples: SpeedSamples) -> None:
        nonlocal run
        run = samples

    await meter.refine(MODEL, run, at_once=at_once, context_length=context_length, keep=keep)
    return run


# the figures


@pytest.mark.parametrize("true", [GPU, CPU], ids=["gpu", "cpu"])
async def test_the_curve_that_a_server_has_is_found(true: Speed) -> None:
    clock = VirtualClock()
    async with clock.running():
        found = fit_speed(await complete_run(CurveServer(clock, true), clock))
    for tokens in (200, 1000, 2048):
        assert found.prefill_s(tokens) == pytest.approx(true.prefill_s(tokens), rel=0.05)
    for jobs in (1, 4, 16):
        assert found.step_s(jobs, jobs * 40) == pytest.approx(true.step_s(jobs, jobs * 40), rel=0.05)
    assert found.prefill_pace == pytest.approx(true.prefill_pace, rel=0.1)
    assert found.decode_pace == pytest.approx(true.decode_pace, rel=0.4)


@pytest.mark.parametrize("true_tps", [20_000.0, 6_500.0, 5_100.0, 3_800.0, 1_600.0])
async def test_what_every_prompt_costs_does_not_count_as_slow_reading(true_tps: float) -> None:
    clock, true = VirtualClock(), msgspec.structs.replace(GPU, prefill_tps=true_tps, prefill_square_s=0.0)
    async with clock.running():
        found = fit_speed(await complete_run(CurveServer(clock, true), clock))
    assert found.prefill_tps == pytest.approx(true_tps, rel=0.05)


async def test_a_context_that_makes_steps_longer_is_seen() -> None:
    clock, true = VirtualClock(), msgspec.structs.replace(GPU, step_per_token_s=1e-6)
    async with clock.running():
        found = fit_speed(await complete_run(CurveServer(clock, true), clock))
        none = fit_speed(await complete_run(CurveServer(clock, GPU), clock))
    assert found.step_per_token_s == pytest.approx(1e-6, rel=0.1)
    assert none.step_per_token_s == pytest.approx(0.0, abs=1e-9), "measured, and found to cost nothing"


async def test_a_short_context_says_nothing_about_what_a_long_one_costs() -> None:
    clock = VirtualClock()
    async with clock.running():
        found = fit_speed(await complete_run(CurveServer(clock, GPU, context=3000), clock, context_length=3000))
    assert found.step_per_token_s is None


def test_noise_is_not_taken_for_the_cost_of_context() -> None:
    assert context_samples(8000.0, 0.0103, alone_s=0.01) == ((1, 8000.0, 0.01),)
    assert context_samples(8000.0, 0.0097, alone_s=0.01) == ((1, 8000.0, 0.01),)
    assert context_samples(8000.0, 0.0120, alone_s=0.01) == ((1, 8000.0, 0.0120),)
    assert context_samples(2000.0, 0.0120, alone_s=0.01) == ((1, 2000.0, 0.0120),)


async def test_a_server_that_serves_one_at_a_time_adds_a_whole_step_for_each_further_answer() -> None:
    clock, true = VirtualClock(), msgspec.structs.replace(GPU, ttft_s=0.0, step_per_job_s=0.0)
    async with clock.running():
        run = await complete_run(CurveServer(clock, true, slots=1), clock, at_once=1)
    found = fit_speed(run)
    assert found.step_per_job_s == pytest.approx(1 / true.decode_tps, rel=0.2)
    assert run.shared is None, "nobody reads while it writes"


# what is asked of the server


async def test_prompts_have_the_lengths_that_a_difference_needs_by_the_servers_count() -> None:
    clock = VirtualClock()
    async with clock.running():
        run = await complete_run(CurveServer(clock, GPU), clock)
    assert [round(tokens, -2) for tokens, _ in run.prefill] == [200, 2000, 8000]
    assert sorted(jobs for jobs, _, _ in run.decode) == [1, 1, 4, 16]


async def test_a_server_that_counts_bytes_gets_prompts_of_the_same_lengths() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU)
        server.tokens_per_word = 6
        run = await complete_run(server, clock)
    assert [round(tokens, -2) for tokens, _ in run.prefill] == [200, 2000, 8000]


async def test_a_slow_machine_is_not_busy_for_minutes() -> None:
    clock = VirtualClock()
    async with clock.running():
        run = await complete_run(CurveServer(clock, CPU), clock, at_once=4)
    assert len(run.prefill) == 2
    assert run.prefill[1][1] < 8.0
    assert clock.now_s() < 40.0


async def test_a_fast_machine_is_measured_in_seconds() -> None:
    clock = VirtualClock()
    async with clock.running():
        await complete_run(CurveServer(clock, GPU), clock)
    assert clock.now_s() < 6.0


async def test_a_prompt_fits_into_the_context() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU, context=6000)
        await complete_run(server, clock, context_length=6000)
        assert 4500 < max(server.prompt_lengths) < 6000


async def test_a_server_that_refuses_longer_prompts_is_measured_with_those_that_it_takes() -> None:
    clock = VirtualClock()
    async with clock.running():
        run = await complete_run(CurveServer(clock, GPU, context=1000), clock)
    assert len(run.prefill) == 1
    assert run.shared is not None, "the rest is measured all the same"


async def test_no_two_prompts_are_alike() -> None:
    """Or a prompt cache would answer for the hardware."""
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU)
        await complete_run(server, clock)
    prompts = [json.loads(body)["messages"][0]["content"] for body in server.bodies]
    assert len({prompt.split()[0] for prompt in prompts}) == len(prompts) > 20


async def test_what_a_run_has_is_not_measured_again() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU)
        run = await complete_run(server, clock)
        meter, asked = SpeedMeter(backend=server, clock=clock, rng=seeded(2)), len(server.bodies)

        async def keep(_: SpeedSamples) -> None:
            raise AssertionError

        await meter.refine(MODEL, run, at_once=64, context_length=None, keep=keep)
    assert len(server.bodies) == asked


async def test_writers_that_end_too_soon_say_nothing_about_sharing() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU)
        server.answer_tokens = 4
        assert (await complete_run(server, clock)).shared is None
    assert not server.jobs


@pytest.mark.parametrize(("slots", "size"), [(0, 2), (1, 2), (2, 2), (7, 7), (500, BATCH_MAX)])
def test_at_least_two_and_at_most_sixteen_at_once(slots: int, size: int) -> None:
    assert batch_size(slots) == size


@pytest.mark.parametrize(
    ("samples", "length", "context", "expected"),
    [
        pytest.param([(200, 0.01)], 2000, None, 2000, id="as asked"),
        pytest.param([(200, 0.01)], 2000, 1000, 836, id="what the context allows"),
        pytest.param([(200, 0.01)], 2000, 512, None, id="no clearly longer one fits"),
        pytest.param([(200, 1.0)], 2000, None, 1000, id="what takes five seconds"),
        pytest.param([(200, 4.0)], 2000, None, None, id="too slow for two lengths"),
        pytest.param([(200, 0.1), (2000, 2.0)], 8000, None, 8000, id="a third"),
        pytest.param([(200, 0.1), (2000, 4.0)], 8000, None, None, id="a third would take too long"),
        pytest.param([(200, 0.0)], 2000, None, 2000, id="a clock that shows no time"),
    ],
)
def test_the_next_length_is_bounded_by_context_and_time(
    samples: list[tuple[float, float]], length: int, context: int | None, expected: int | None
) -> None:
    assert next_length(samples, length, context) == expected


# reading beside writers


def read_job(*, ttft_s: float, tokens: int = 1000) -> JobTiming:
    return JobTiming(began_s=100.0, events_s=[100.0 + ttft_s], prompt_tokens=tokens, completion_tokens=1)


def writer(*, until_s: float, step_s: float = 0.1) -> JobTiming:
    return JobTiming(98.0, [98.0 + step_s * number for number in range(round((until_s - 98.0) / step_s))], 30, 1)


def test_the_steps_of_all_writers_while_the_prompt_is_read_are_averaged() -> None:
    writers = [writer(until_s=110, step_s=0.1), writer(until_s=110, step_s=0.05)]
    sample = shared_sample(read_job(ttft_s=2.0), writers, until_s=999.0, alone_s=0.001)
    assert sample is not None
    assert sample == pytest.approx((1000, 2.0, 30), abs=1)


def test_what_was_read_after_a_writer_ended_does_not_count() -> None:
    """Half of the prompt at a pace of 0.5 takes 1 s of the 1.5; all of it would take 2 s."""
    sample = shared_sample(read_job(ttft_s=1.5), [writer(until_s=101.05)], until_s=101.0, alone_s=0.001)
    assert sample is not None
    assert sample[:2] == pytest.approx((1000, 2.0))
    assert sample[2] == pytest.approx(20, abs=2)


def test_a_prompt_that_was_hardly_read_beside_writers_is_no_sample() -> None:
    assert shared_sample(read_job(ttft_s=1.0), [writer(until_s=100.1)], until_s=100.1, alone_s=0.001) is None


# servers that fail


def real_meter(backend: Backend) -> SpeedMeter:
    return SpeedMeter(backend=backend, clock=SystemClock(), rng=seeded(1))


async def test_an_engine_is_measured_within_the_bounds_of_a_report(tmp_path: Path) -> None:
    stages = list[str]()
    async with rigged(tmp_path) as rig:
        meter = SpeedMeter(backend=rig.backend, clock=InstantClock(), rng=seeded(1))
        speed = fit_speed(await meter.quick(MODEL, at_once=6, progress=stages.append))
    assert validated(speed) == speed
    assert speed.batch == 6
    assert stages == ["writes alone (1 of 3)", "reads (2 of 3)", "writes 6 at once (3 of 3)"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("drop_before_head", BackendUnreachable),
        ("status", BadBackendReply),
        ("drop_after_tokens", BadBackendReply),
        ("garbage", BadBackendReply),
        ("error_event", BadBackendReply),
    ],
)
async def test_a_server_that_fails_is_not_measured(tmp_path: Path, kind: str, error: type[Exception]) -> None:
    async with rigged(tmp_path) as rig:
        await rig.fault(kind, after_tokens=2)
        with pytest.raises(error):
            await real_meter(rig.backend).quick(MODEL, at_once=2)


async def test_measuring_a_server_that_stalls_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rigged(tmp_path) as rig:
        run = await real_meter(rig.backend).quick(MODEL, at_once=2)
        monkeypatch.setattr(model_speed, "MEASURE_S", 0.05)
        monkeypatch.setattr(model_speed, "STAGE_S", 0.05)
        await rig.fault("stall_after_tokens", after_tokens=2, count=None)
        with pytest.raises(BadBackendReply, match="longer"):
            await real_meter(rig.backend).quick(MODEL, at_once=2)

        async def keep(_: SpeedSamples) -> None:
            raise AssertionError

        with pytest.raises(BadBackendReply, match="longer"):
            await real_meter(rig.backend).refine(MODEL, run, at_once=2, context_length=None, keep=keep)


class Loner(CurveServer):
    """Refuses a second request at once."""

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        if self.jobs:
            yield BackendReply(429, "application/json", self._stream())
            return
        async with super().post(path, body) as reply:
            yield reply


async def test_a_server_that_refuses_two_jobs_at_once_is_measured_without_a_batch() -> None:
    clock = VirtualClock()
    async with clock.running():
        meter = SpeedMeter(backend=Loner(clock, GPU), clock=clock, rng=seeded(1))
        speed = fit_speed(await meter.quick(MODEL, at_once=8))
    assert speed.decode_tps == pytest.approx(150.0, rel=0.01)
    assert (speed.step_per_job_s, speed.batch) == (None, None)


# models that only embed


async def test_a_model_that_only_embeds_is_timed_by_what_it_reads() -> None:
    clock = VirtualClock()
    async with clock.running():
        meter = SpeedMeter(backend=CurveServer(clock, GPU), clock=clock, rng=seeded(1))
        found = fit_speed(await meter.embedding(MODEL, context_length=8192))
    assert found.prefill_tps == found.decode_tps == pytest.approx(20_000, rel=0.1)


async def test_an_embedding_model_with_a_short_context_is_timed_with_one_length() -> None:
    clock = VirtualClock()
    async with clock.running():
        server = CurveServer(clock, GPU, context=512)
        meter = SpeedMeter(backend=server, clock=clock, rng=seeded(1))
        told = await meter.embedding(MODEL, context_length=512)
        untold = await meter.embedding(MODEL, context_length=None)
        assert len(told.prefill) == len(untold.prefill) == 1
        server.context = 10
        with pytest.raises(BadBackendReply):
            await meter.embedding(MODEL, context_length=None)


@pytest.mark.parametrize(
    ("capabilities", "is_so"),
    [(None, False), ((), False), (("embeddings",), True), (("embeddings", "chat"), False), (("chat",), False)],
)
def test_a_model_is_embedding_only_by_its_capabilities(capabilities: tuple[str, ...] | None, *, is_so: bool) -> None:
    assert is_embedding_only(capabilities) is is_so


async def test_a_node_reports_the_capabilities_of_its_server(tmp_path: Path) -> None:
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), capabilities=("embeddings",))) as rig:
        await rig.inventory.refresh()
        (model,) = rig.inventory.specs.models
    assert model.capabilities == ("embeddings",)
    assert model.measured is not None
