from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sparewatt.core.clock import Clock, SystemClock
from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.core.rng import seeded
from sparewatt.node.backends.backend import Backend, BackendReply, BackendUnreachable, BadBackendReply
from sparewatt.node.backends.openai import OpenAIBackend
from sparewatt.node.measurement import model_speed
from sparewatt.node.measurement.model_speed import (
    BATCH_TOKENS,
    READ_WORDS,
    WRITE_TOKENS,
    SpeedMeter,
    _JobTiming,
    faster_of,
    is_embedding_only,
    step_per_job_s,
)
from sparewatt.protocol.link.node_report import Speed, validated
from sparewatt.testing import EngineSettings, InstantClock, running_engine
from sparewatt.testing.clocks import ManualClock
from tests.unit.node.rig import MODEL, ScriptedBackend, rigged

SPEED = Speed(prefill_tps=1000.0, decode_tps=50.0, ttft_s=0.2)


def meter(backend: Backend, *, clock: Clock | None = None) -> SpeedMeter:
    return SpeedMeter(backend=backend, clock=clock or SystemClock(), rng=seeded(1))


async def measured(backend: Backend, *, clock: ManualClock | None = None) -> Speed:
    return await meter(backend, clock=clock or ManualClock()).measure_chat(MODEL)


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str | None) -> bytes:
    return event(choices=[{"delta": {"content": content}}])


def usage(prompt: int, completion: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


class Timed:
    """Chunks with the time that passes before each; the same for every job."""

    def __init__(self, clock: ManualClock, *steps: tuple[float, bytes]) -> None:
        self._clock = clock
        self._steps = steps

    def __iter__(self) -> Iterator[bytes]:
        for wait_s, chunk in self._steps:
            self._clock.advance(wait_s)
            yield chunk


# against the engine


async def test_an_engine_is_measured_within_the_bounds_of_a_report(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        speed = await meter(rig.backend, clock=InstantClock()).measure_chat(MODEL)
        assert validated(speed) == speed
        assert (await rig.stats())["finished"] == 4


async def test_measuring_reads_much_and_writes_a_little(tmp_path: Path) -> None:
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), answer_tokens=1000)) as rig:
        await meter(rig.backend, clock=InstantClock()).measure_chat(MODEL)
        assert (await rig.stats())["tokens"] == WRITE_TOKENS + 1 + 2 * BATCH_TOKENS


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
            await measured(rig.backend)


async def test_measuring_a_server_that_stalls_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_speed, "MEASURE_S", 0.05)
    async with rigged(tmp_path) as rig:
        await rig.fault("stall_after_tokens", after_tokens=2, count=None)
        with pytest.raises(BadBackendReply, match="longer"):
            await measured(rig.backend)


# the figures


async def test_the_figures_follow_from_the_clock() -> None:
    clock = ManualClock()
    chunks = Timed(clock, (0.1, text(None)), (0.4, text("a")), (0.5, text("b")), (0.5, text("c")), (0.0, usage(100, 3)))
    speed = await measured(ScriptedBackend(chunks), clock=clock)
    assert speed == Speed(
        ttft_s=0.5,
        prefill_tps=100 / 0.5,
        decode_tps=2 / 1.0,
        step_per_job_s=0.5,
        batch=2,
        batch_decode_tps=2.4,
        batch_ttft_s=0.5,
    )


@pytest.mark.parametrize(
    "opening", [text(None), text(""), event(choices=[{"delta": {"role": "assistant"}}]), b": hi\n\n"]
)
async def test_an_opening_without_text_is_no_token(opening: bytes) -> None:
    clock = ManualClock()
    chunks = Timed(clock, (0.1, opening), (0.4, text("a")), (1.0, text("b")), (0, usage(10, 2)))
    assert (await measured(ScriptedBackend(chunks), clock=clock)).ttft_s == 0.5


async def test_a_token_without_text_counts_when_the_answer_ends_with_it() -> None:
    clock = ManualClock()
    finish = event(choices=[{"delta": {}, "finish_reason": "length"}])
    speed = await measured(ScriptedBackend(Timed(clock, (0.5, finish), (0, usage(10, 1)))), clock=clock)
    assert (speed.ttft_s, speed.prefill_tps) == (0.5, 20.0)


async def test_reasoning_counts_as_tokens() -> None:
    clock = ManualClock()
    thought = event(choices=[{"delta": {"reasoning": "hm"}}])
    speed = await measured(
        ScriptedBackend(Timed(clock, (0.5, thought), (1.0, thought), (0, usage(10, 2)))), clock=clock
    )
    assert (speed.ttft_s, speed.decode_tps) == (0.5, 1.0)


async def test_events_may_be_cut_anywhere_and_written_without_a_space() -> None:
    clock = ManualClock()
    whole = (text("a") + usage(10, 1) + b"data: [DONE]\n\n").replace(b"data: ", b"data:").replace(b"\n", b"\r\n")
    chunks = Timed(clock, *((0.01, whole[at : at + 1]) for at in range(len(whole))))
    assert (await measured(ScriptedBackend(chunks), clock=clock)).prefill_tps > 0


async def test_a_clock_that_shows_no_time_makes_no_absurd_figure() -> None:
    speed = await measured(ScriptedBackend([text("a"), text("b"), usage(1 << 24, 1 << 24)]))
    assert validated(speed) == speed


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing"),
        pytest.param([usage(10, 0)], id="no-tokens"),
        pytest.param([text("a")], id="no-counts"),
        pytest.param([b"data: nonsense\n\n"], id="no-json"),
        pytest.param([event(error={"message": "no"})], id="error"),
        pytest.param([text("a"), usage(-5, 1)], id="negative-counts"),
        pytest.param([bytes(SSE_EVENT_BYTES_MAX), b"x"], id="no-end-of-line"),
    ],
)
async def test_a_server_that_makes_no_sense_is_not_measured(chunks: list[bytes]) -> None:
    with pytest.raises(BadBackendReply):
        await measured(ScriptedBackend(chunks))


async def test_no_two_measuring_prompts_are_alike() -> None:
    """Or a prompt cache would answer for the hardware."""
    backend = ScriptedBackend([text("a"), usage(10, 1)])
    rng = seeded(1)
    for _ in range(3):
        await SpeedMeter(backend=backend, clock=ManualClock(), rng=rng).measure_chat(MODEL)
    prompts = [json.loads(body)["messages"][0]["content"] for body in backend.bodies]
    assert len({prompt.split()[0] for prompt in prompts}) == len(prompts) == 12
    assert len(prompts[1].split()) == READ_WORDS + 1


# two at once


def a_run(*, began_s: float = 0.0, first_s: float = 0.1, step_s: float = 0.1, tokens: int = 11) -> _JobTiming:
    return _JobTiming(began_s, first_s, first_s + step_s * (tokens - 1), tokens, 30, tokens)


def test_a_further_answer_adds_the_difference_of_the_steps() -> None:
    pair = [a_run(step_s=0.12), a_run(began_s=0.05, step_s=0.14)]
    assert step_per_job_s(a_run(), pair) == pytest.approx(0.03)


def test_a_further_answer_never_makes_the_others_faster() -> None:
    assert step_per_job_s(a_run(), [a_run(step_s=0.05), a_run(step_s=0.06)]) == 0.0


@pytest.mark.parametrize("swap", [False, True])
def test_a_server_that_serves_one_at_a_time_adds_a_whole_step(*, swap: bool) -> None:
    pair = [a_run(), a_run(first_s=1.2)]
    assert step_per_job_s(a_run(), pair[::-1] if swap else pair) == pytest.approx(0.1)


class Loner(ScriptedBackend):
    """Has had enough after two jobs."""

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[BackendReply]:
        self._status = 200 if len(self.bodies) < 2 else 429
        async with super().post(path, body) as reply:
            yield reply


async def test_a_server_that_refuses_two_jobs_at_once_is_measured_without_a_batch() -> None:
    clock = ManualClock()
    chunks = Timed(clock, (0.5, text("a")), (0.5, text("b")), (0.0, usage(100, 2)))
    speed = await measured(Loner(chunks), clock=clock)
    assert (speed.decode_tps, speed.step_per_job_s) == (2.0, None)


# which of two measurements


@pytest.mark.parametrize(
    ("decode", "prefill", "expected"),
    [
        (200, 1000, (200, 1000)),
        (100, 2000, (100, 2000)),
        (104, 1000, (100, 1000)),
        (50, 9000, (100, 9000)),
        (98, 1100, (100, 1100)),
        (200, 500, (200, 1000)),
        (100, 1000, (100, 1000)),
    ],
)
def test_of_two_measurements_each_figure_that_is_clearly_better_counts(
    decode: float, prefill: float, expected: tuple[float, float]
) -> None:
    before, now = Speed(prefill_tps=1000, decode_tps=100), Speed(prefill_tps=prefill, decode_tps=decode)
    best = faster_of(before, now)
    assert (best.decode_tps, best.prefill_tps) == expected


def in_batch(tps: float, *, batch: int = 4, decode: float = 30.0, prefill: float = 135.0) -> Speed:
    return Speed(
        prefill_tps=prefill,
        decode_tps=decode,
        ttft_s=0.3,
        step_per_job_s=1 / tps,
        batch=batch,
        batch_decode_tps=tps,
        batch_ttft_s=10 / tps,
    )


def test_a_run_that_writes_faster_alone_does_not_take_away_what_was_better_before() -> None:
    before, now = in_batch(84.0), in_batch(14.0, decode=33.0, prefill=78.0)
    assert faster_of(before, now) == in_batch(84.0, decode=33.0)


def test_the_figures_of_a_batch_come_from_one_run() -> None:
    before = in_batch(14.0)
    assert faster_of(before, in_batch(84.0, decode=10.0, prefill=10.0)) == in_batch(84.0)
    assert faster_of(before, in_batch(14.5)) == before
    assert faster_of(before, SPEED).batch_decode_tps == 14.0
    assert faster_of(SPEED, before).batch_decode_tps == 14.0


def test_for_a_batch_of_another_size_the_later_run_counts() -> None:
    assert faster_of(in_batch(84.0, batch=16), in_batch(40.0, batch=4)) == in_batch(40.0, batch=4)


def test_the_first_token_time_that_is_clearly_shorter_counts() -> None:
    slow, quick = msgspec.structs.replace(SPEED, ttft_s=0.5), SPEED
    assert faster_of(slow, quick).ttft_s == 0.2
    assert faster_of(quick, slow) == quick


# batches


async def test_a_server_is_measured_at_its_own_concurrency(tmp_path: Path) -> None:
    stages = list[str]()
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), slots=6)) as rig:
        speed = await meter(rig.backend).measure_chat(MODEL, at_once=6, progress=stages.append)
    assert speed.batch == 6
    assert speed.batch_decode_tps
    assert speed.batch_ttft_s is not None
    assert stages == ["writes alone (1 of 3)", "reads (2 of 3)", "writes 6 at once (3 of 3)"]


@pytest.mark.parametrize(("slots", "at_once"), [(1, 2), (2, 2), (500, 16)])
async def test_at_least_two_and_at_most_sixteen_at_once(tmp_path: Path, slots: int, at_once: int) -> None:
    async with rigged(tmp_path) as rig:
        speed = await meter(rig.backend).measure_chat(MODEL, at_once=slots)
    assert speed.batch == at_once


# models that only embed


async def test_a_model_that_only_embeds_is_timed_by_what_it_reads(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        speed = await meter(rig.backend).measure_embedding(MODEL)
        assert speed.prefill_tps == speed.decode_tps > 0
        await rig.fault("status")
        with pytest.raises(BadBackendReply):
            await meter(rig.backend).measure_embedding(MODEL)
    with pytest.raises(BadBackendReply):
        await meter(ScriptedBackend([b"nonsense"])).measure_embedding(MODEL)


@pytest.mark.parametrize(
    ("capabilities", "is_so"),
    [(None, False), ((), False), (("embeddings",), True), (("embeddings", "chat"), False), (("chat",), False)],
)
def test_a_model_is_embedding_only_by_its_capabilities(capabilities: tuple[str, ...] | None, *, is_so: bool) -> None:
    assert is_embedding_only(capabilities) is is_so


async def test_an_embedding_model_is_timed_by_its_reading() -> None:
    async with (
        running_engine(EngineSettings(models=(MODEL,), prefill_tps=2000.0)) as url,
        aiohttp.ClientSession() as session,
    ):
        speed = await SpeedMeter(
            backend=OpenAIBackend(url, session), clock=SystemClock(), rng=seeded(1)
        ).measure_embedding(MODEL)
    assert 0 < speed.prefill_tps <= 2000.0
    assert speed.ttft_s > 0


async def test_an_embedding_model_that_the_server_does_not_have_is_not_measured() -> None:
    async with running_engine(EngineSettings(models=("other",))) as url, aiohttp.ClientSession() as session:
        with pytest.raises(BadBackendReply):
            await meter(OpenAIBackend(url, session)).measure_embedding(MODEL)


async def test_a_node_reports_the_capabilities_of_its_server(tmp_path: Path) -> None:
    async with rigged(tmp_path, engine=EngineSettings(models=(MODEL,), capabilities=("embeddings",))) as rig:
        await rig.inventory.refresh()
        (model,) = rig.inventory.specs.models
    assert model.capabilities == ("embeddings",)
    assert model.measured is not None
