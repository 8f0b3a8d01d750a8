"""What a client sees of its job after the first token: failures, cancellation, flow control."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.core.errors import (
    FirstTokenTimeout,
)
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.inference.dispatch.model import DispatchRules, Outcome
from tests.unit.inference.scripted import (
    ANSWER,
    COMPLETION,
    DONE,
    FINISH,
    ROLE,
    USAGE,
    ScriptedNode,
    Stage,
    error_of,
    outcomes,
    text_event,
)

Failure = Callable[[Stage, ScriptedNode], None]


# failures after the first token

BREAKS: dict[str, Failure] = {
    "fail frame": lambda _, node: node.fail(),
    "refused after all": lambda _, node: node.fail("refused"),
    "link lost": lambda _, node: node.lost(),
    "garbage": lambda _, node: node.data(b"data: <html>\n\n"),
    "error event": lambda _, node: node.data(b'data: {"error":{"message":"out of memory"}}\n\n'),
    "early end": lambda _, node: node.end(),
    "silence": lambda stage, _: stage.clock.advance(stage.rules.idle_s),
    "job timeout": lambda stage, node: _keep_talking(stage, node, stage.rules.job_s),
}


def _keep_talking(stage: Stage, node: ScriptedNode, seconds: float) -> None:
    for _ in range(int(seconds / 10)):
        stage.clock.advance(10)
        if not stage.sink.over:
            node.data(b": still here\n\n")


@pytest.mark.parametrize("failure", BREAKS.values(), ids=BREAKS.keys())
def test_a_failure_after_the_first_token_ends_in_an_error_object(failure: Failure) -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ROLE, text_event("Hel"))
    failure(stage, node)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body.startswith(ROLE + text_event("Hel") + b'data: {"error"')
    assert b"[DONE]" not in stage.sink.body
    assert set(error_of(stage)) == {"message", "type", "param", "code"}
    assert error_of(stage)["code"] == "node_failed"
    assert len(run.record.attempts) == 1
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


def test_what_came_whole_before_the_garbage_is_not_lost() -> None:
    stage = Stage()
    node = stage.turn(stage.dispatch())
    node.begin(text_event("a"))
    node.data(text_event("b") + b"data: <html>\n\n")
    assert stage.sink.body.startswith(text_event("a") + text_event("b") + b'data: {"error"')


def test_silence_is_counted_from_the_last_byte() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(text_event("a"))
    for _ in range(5):
        stage.clock.advance(stage.rules.idle_s - 1)
        node.data(text_event("a"))
    assert outcomes(run) == [Outcome.RUNNING]
    stage.clock.advance(stage.rules.idle_s)
    assert outcomes(run) == [Outcome.TIMED_OUT]
    assert node.cancelled == [1]


def test_a_node_without_credit_is_not_silent() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(*_filling(node.may_send_bytes))
    assert node.may_send_bytes == 0
    stage.clock.advance(4.5 * stage.rules.idle_s)
    run.consumed(len(stage.sink.body))
    stage.clock.advance(0.9 * stage.rules.idle_s)
    assert outcomes(run) == [Outcome.RUNNING]
    stage.clock.advance(0.1 * stage.rules.idle_s)
    assert outcomes(run) == [Outcome.TIMED_OUT]


def _filling(n_bytes: int) -> list[bytes]:
    """Events of exactly that many bytes together."""
    empty = len(text_event(""))
    first = text_event("x" * (n_bytes // 2 - empty))
    return [first, text_event("y" * (n_bytes - len(first) - empty))]


AFTER_DONE: dict[str, Failure] = BREAKS | {"job timeout": lambda stage, _: stage.clock.advance(stage.rules.job_s)}


@pytest.mark.parametrize("failure", AFTER_DONE.values(), ids=AFTER_DONE.keys())
def test_a_node_lost_after_done_has_done_its_job(failure: Failure) -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ANSWER)
    failure(stage, node)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


# the client leaves


def _nothing(_: ScriptedNode) -> None: ...


STAGES: dict[str, Callable[[ScriptedNode], None]] = {
    "before the head": _nothing,
    "after the head": lambda node: node.head(),
    "after the role": lambda node: node.begin(ROLE),
    "after the first token": lambda node: node.begin(ROLE, text_event("a")),
    "after done": lambda node: node.begin(ANSWER),
}


@pytest.mark.parametrize("until", STAGES.values(), ids=STAGES.keys())
@pytest.mark.parametrize("failed_before", [0, 1])
def test_a_client_that_leaves_stops_the_node(until: Callable[[ScriptedNode], None], failed_before: int) -> None:
    stage = Stage()
    run = stage.dispatch()
    for _ in range(failed_before):
        stage.turn(run).fail()
    node = stage.turn(run)
    until(node)
    calls = list(stage.sink.calls)
    run.cancel()
    assert node.cancelled == [1]
    assert stage.sink.calls == calls
    assert run.record.outcome is Outcome.CANCELLED
    assert outcomes(run)[-1] is Outcome.CANCELLED
    stage.assert_nothing_left()


def test_a_client_that_leaves_twice_or_late_changes_nothing() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.answer(ANSWER)
    run.cancel()
    run.cancel()
    run.consumed(100)
    assert node.cancelled == []
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


def test_a_node_is_not_blamed_for_a_client_that_leaves() -> None:
    stage = Stage()
    run = stage.dispatch()
    run.cancel()
    row = stage.table.get(run.record.attempts[0].node_id)
    assert row is not None
    assert (row.jobs_failed, row.suspect_until_s) == (0, 0.0)


def test_a_job_is_over_when_its_time_is() -> None:
    stage = Stage(rules=DispatchRules(first_token_floor_s=100, job_s=50))
    run = stage.dispatch()
    stage.clock.advance(50)
    assert isinstance(stage.sink.error, FirstTokenTimeout)
    assert stage.turn(run).cancelled == [1]
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


# credit


def test_credit_equals_the_bytes_that_came_once_the_client_took_its_share() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ROLE, b": ping\n\n", text_event("a")[:9], text_event("a")[9:], USAGE, FINISH)
    run.consumed(len(stage.sink.body))
    assert node.credit_bytes == node.sent_bytes


def test_what_the_client_has_not_taken_gives_no_credit() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ROLE, text_event("a"), USAGE)
    for _ in range(10):
        node.data(text_event("b"))
    assert node.credit_bytes <= node.sent_bytes
    assert node.sent_bytes - node.credit_bytes >= len(stage.sink.body) - len(ROLE)
    run.consumed(len(stage.sink.body))
    assert node.credit_bytes == node.sent_bytes


def test_a_whole_reply_is_credited_as_it_comes() -> None:
    stage = Stage()
    node = stage.turn(stage.dispatch(stream=False))
    node.begin(COMPLETION[:50])
    assert node.credit_bytes == 50


def test_a_refusal_is_credited_as_it_comes() -> None:
    stage = Stage()
    node = stage.turn(stage.dispatch())
    node.head(500)
    node.data(b"x" * 70)
    assert node.credit_bytes == 70


@pytest.mark.parametrize("before", [b"", text_event("a")], ids=["as the first token", "later"])
def test_an_event_larger_than_the_window_passes(before: bytes) -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.head()
    wire = before + text_event("x" * 2 * LINK_STREAM_WINDOW_BYTES) + DONE
    at = 0
    while at < len(wire):
        size = min(node.may_send_bytes, 100_000)
        assert size > 0
        node.data(wire[at : at + size])
        at += size
    node.end()
    assert stage.sink.body == wire
    stage.assert_nothing_left()


def test_a_job_that_runs_out_of_time_after_done_is_done() -> None:
    stage = Stage(rules=DispatchRules(idle_s=3600))
    run = stage.dispatch()
    stage.turn(run).begin(ANSWER)
    stage.clock.advance(stage.rules.job_s)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
    assert stage.turn(run).cancelled == [1]
    stage.assert_nothing_left()


def test_a_client_that_takes_nothing_stops_the_node_at_the_window() -> None:
    stage = Stage()
    node = stage.turn(stage.dispatch())
    node.head()
    chunk = text_event("x" * 1000)
    while node.may_send_bytes >= len(chunk):
        node.data(chunk)
    assert len(stage.sink.body) <= LINK_STREAM_WINDOW_BYTES
