"""Times are read from a stream of events as servers really send it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from sparewatt.core.limits import SSE_EVENT_BYTES_MAX
from sparewatt.node.backends.backend import BadBackendReply
from sparewatt.node.measurement import job_timing
from sparewatt.node.measurement.job_timing import JobTimer, JobTiming, batch_step_s
from sparewatt.testing import InstantClock, ManualClock
from tests.unit.node.rig import MODEL, ScriptedBackend


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str | None) -> bytes:
    return event(choices=[{"delta": {"content": content}}])


def usage(prompt: int, completion: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


FINISH = event(choices=[{"delta": {}, "finish_reason": "length"}])


class TimedChunks:
    """Chunks with the time that passes before each."""

    def __init__(self, clock: ManualClock, *steps: tuple[float, bytes]) -> None:
        self._clock = clock
        self._steps = steps

    def __iter__(self) -> Iterator[bytes]:
        for wait_s, chunk in self._steps:
            self._clock.advance(wait_s)
            yield chunk


async def timed(*steps: tuple[float, bytes]) -> JobTiming:
    clock = ManualClock()
    return await JobTimer(ScriptedBackend(TimedChunks(clock, *steps)), clock).run(MODEL, "hi", 8)


async def run_over(chunks: Iterable[bytes]) -> JobTiming:
    return await JobTimer(ScriptedBackend(chunks), ManualClock()).run(MODEL, "hi", 8)


async def test_times_follow_from_the_clock_and_tokens_from_the_server() -> None:
    job = await timed((0.1, text(None)), (0.4, text("a")), (0.5, text("b")), (0.5, text("c")), (0.3, usage(100, 3)))
    assert (job.ttft_s, job.step_s, job.took_s) == pytest.approx((0.5, 0.5, 1.5))
    assert (job.prompt_tokens, job.completion_tokens, job.mean_context) == (100, 3, 101.5)


@pytest.mark.parametrize(
    "opening", [text(None), text(""), event(choices=[{"delta": {"role": "assistant"}}]), b": hi\n\n"]
)
async def test_an_opening_without_text_is_no_token(opening: bytes) -> None:
    job = await timed((0.1, opening), (0.4, text("a")), (1.0, text("b")), (0.0, usage(10, 2)))
    assert job.ttft_s == pytest.approx(0.5)


async def test_an_only_token_without_text_counts_when_the_answer_ends_with_it() -> None:
    assert (await timed((0.5, FINISH), (0.0, usage(10, 1)))).ttft_s == pytest.approx(0.5)


async def test_the_end_of_an_answer_is_no_further_token() -> None:
    job = await timed((0.5, text("a")), (0.1, text("b")), (9.0, FINISH), (0.0, usage(10, 2)))
    assert job.step_s == pytest.approx(0.1)


async def test_reasoning_counts_as_tokens() -> None:
    thought = event(choices=[{"delta": {"reasoning": "hm"}}])
    job = await timed((0.5, thought), (1.0, thought), (0.0, usage(10, 2)))
    assert (job.ttft_s, job.step_s) == pytest.approx((0.5, 1.0))


async def test_events_may_be_cut_anywhere_and_written_without_a_space() -> None:
    whole = (text("a") + usage(10, 1) + b"data: [DONE]\n\n").replace(b"data: ", b"data:").replace(b"\n", b"\r\n")
    job = await timed(*((0.01, whole[at : at + 1]) for at in range(len(whole))))
    assert job.prompt_tokens == 10


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
async def test_a_server_that_makes_no_sense_is_not_timed(chunks: list[bytes]) -> None:
    with pytest.raises(BadBackendReply):
        await run_over(chunks)


async def test_a_server_that_writes_without_end_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_timing, "EVENTS_MAX", 3)
    assert await run_over([text("a")] * 3 + [usage(10, 3)])
    with pytest.raises(BadBackendReply, match="without end"):
        await run_over([text("a")] * 4)


async def test_the_owners_speed_limit_shows_in_the_figures() -> None:
    backend = ScriptedBackend([text("a"), text("b"), text("c"), usage(10, 3)])
    job = await JobTimer(backend, InstantClock(), limit_tps=10.0).run(MODEL, "hi", 3)
    assert job.step_s == pytest.approx(0.1)


async def test_under_a_speed_limit_tokens_are_timed_one_by_one_though_the_server_is_far_ahead() -> None:
    backend = ScriptedBackend([b"".join([text("a"), text("b"), text("c"), usage(10, 3)])])
    job = await JobTimer(backend, InstantClock(), limit_tps=10.0).run(MODEL, "hi", 3)
    assert [at_s - job.began_s for at_s in job.events_s] == pytest.approx([0.1, 0.2, 0.3])


async def test_embeddings_without_a_count_are_no_sample() -> None:
    with pytest.raises(BadBackendReply, match="count"):
        await JobTimer(ScriptedBackend([b'{"data":[]}']), ManualClock()).embed(MODEL, "hi")
    with pytest.raises(BadBackendReply, match="500"):
        await JobTimer(ScriptedBackend([b"{}"], status=500), ManualClock()).embed(MODEL, "hi")


# batches


def a_job(*, began_s: float = 0.0, first_s: float = 0.1, step_s: float = 0.1, tokens: int = 11) -> JobTiming:
    return JobTiming(began_s, [began_s + first_s + step_s * number for number in range(tokens)], 30, tokens)


def test_a_step_of_a_batch_is_timed_while_all_of_it_writes() -> None:
    """The first waits while the prompts of the others are read; that is no step."""
    stalled = JobTiming(0.0, [0.1, *(1.0 + 0.1 * number for number in range(10))], 30, 11)
    assert batch_step_s([stalled, a_job(first_s=1.0)]) == pytest.approx(0.1, rel=0.05)


def test_several_tokens_in_one_event_are_several_steps() -> None:
    pairs = [JobTiming(0.0, [0.1 + 0.2 * number for number in range(10)], 30, 20) for _ in range(2)]
    assert batch_step_s(pairs) == pytest.approx(0.1)


@pytest.mark.parametrize("swap", [False, True])
def test_a_server_that_serves_one_at_a_time_needs_as_many_steps_as_answers(*, swap: bool) -> None:
    pair = [a_job(), a_job(first_s=1.2)]
    assert batch_step_s(pair[::-1] if swap else pair) == pytest.approx(0.2, rel=0.1)


def test_a_clock_that_shows_no_time_makes_no_absurd_step() -> None:
    job = JobTiming(5.0, [5.0, 5.0], 10, 2)
    assert job.step_s > 0
    assert batch_step_s([job, job]) > 0
