"""A node that writes more than the request allows is stopped, and the client has no more than it asked for."""

from __future__ import annotations

import math

import msgspec
import pytest

from sparewatt.inference.dispatch.attempt import CHUNKS_EXTRA, CHUNKS_PER_TOKEN_MAX
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.formula import BALANCED
from tests.unit.inference.dispatch.test_failover import REQUEST, a_request
from tests.unit.inference.dispatch.test_job_run_slow import streams
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, Stage, outcomes, text_event

LIMIT = 20
MOST = math.floor(LIMIT * CHUNKS_PER_TOKEN_MAX + CHUNKS_EXTRA)


def dispatched(stage: Stage, *, stream: bool = True) -> JobRun:
    job = a_request({"max_tokens": LIMIT}, output_limit=LIMIT)
    if not stream:
        call = msgspec.structs.replace(job.call, stream=False)
        job = msgspec.structs.replace(job, call=call, body=msgspec.json.encode(REQUEST))
    return stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED)


def test_a_stream_without_end_is_cut_soon_after_its_limit() -> None:
    stage = Stage(1)
    run = dispatched(stage)
    node = stage.turn(run)
    node.begin(ROLE)
    for _ in range(10 * MOST):
        node.data(text_event(" word"))
    assert outcomes(run)[0] is Outcome.FAILED
    assert stage.sink.body.count(b" word") <= MOST + 1
    assert "finish" in stage.sink.calls


def test_a_whole_answer_without_end_is_asked_of_another_node() -> None:
    stage = Stage(2)
    run = dispatched(stage, stream=False)
    first = stage.turn(run)
    streams(first, ROLE)
    for _ in range(10 * MOST):
        first.data(text_event(" word"))
    second = stage.turn(run)
    assert second is not first
    second.answer(COMPLETION)
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    assert b"word" not in stage.sink.body


@pytest.mark.parametrize("chunks", [LIMIT, LIMIT + 8])
def test_an_answer_up_to_its_limit_passes(chunks: int) -> None:
    """A parser may cut a token in two: a few chunks more are no more tokens."""
    stage = Stage(1)
    run = dispatched(stage)
    stage.turn(run).answer(ROLE, *[text_event(" word")] * chunks, FINISH, DONE)
    assert outcomes(run) == [Outcome.DONE]
    assert stage.sink.body.count(b" word") == chunks


def test_without_a_limit_an_answer_may_be_long() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.turn(run).answer(ROLE, *[text_event(" word")] * 500, FINISH, DONE)
    assert outcomes(run) == [Outcome.DONE]
    assert stage.sink.body.endswith(DONE)
