"""Slow is failed, early: deadlines before the first token, breakers, hedges, and replies that are put together."""

from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import FirstTokenTimeout
from sparewatt.core.ids import NodeId
from sparewatt.inference.dispatch.first_token_times import TIMES_KEPT
from sparewatt.inference.dispatch.hedging import HEDGES_PER_REQUEST
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.circuit_breaker import OPEN_FIRST_S
from sparewatt.protocol.link.frames import JobReplyHead, Opcode, encode_message
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import MODEL, NOW_S, a_model, node_id, some_specs
from tests.unit.inference.scripted import (
    ANSWER,
    COMPLETION,
    DONE,
    FINISH,
    ROLE,
    USAGE,
    ScriptedNode,
    Stage,
    outcomes,
    text_event,
)

HEDGED_S, MISSED_S = 1.3, 2.6
"""Just beyond the first two marks of a job whose first token is predicted after 0.62 s."""


def shut(stage: Stage, node: NodeId) -> bool:
    return stage.table.is_shut(node, MODEL, now_s=stage.clock.now_s())


def answer_all(stage: Stage, count: int) -> None:
    for _ in range(count):
        stage.turn(stage.again()).answer(ANSWER)


def streams(node: ScriptedNode, *pieces: bytes) -> None:
    """Begin an event stream, as a node's agent says it."""
    head = JobReplyHead(status=200, content_type="text/event-stream")
    node.link.receive(encode_message(Opcode.HEAD, head, stream=len(node.opened)))
    node.data(*pieces)


# deadlines


def test_a_node_that_is_late_loses_the_job_and_further_ones() -> None:
    stage = Stage()
    run = stage.dispatch()
    slow = stage.turn(run)
    stage.clock.advance(MISSED_S)
    assert stage.turn(run) is not slow
    assert shut(stage, slow.id)
    stage.turn(run).answer(ANSWER)
    assert outcomes(run) == [Outcome.TIMED_OUT, Outcome.DONE]
    for _ in range(10):
        run = stage.again()
        assert stage.turn(run) is not slow
        stage.turn(run).answer(ANSWER)


def test_the_only_node_is_waited_for() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.clock.advance(stage.rules.first_token_floor_s - 1)
    assert outcomes(run) == [Outcome.RUNNING]
    stage.turn(run).answer(ANSWER)
    assert stage.sink.body == ANSWER
    row = stage.table.get(stage.turn(run).id)
    assert row is not None
    assert row.jobs_failed == 0


def test_the_only_node_is_not_waited_for_for_ever() -> None:
    stage = Stage(1)
    stage.dispatch()
    stage.clock.advance(stage.rules.first_token_floor_s + 0.2)
    assert isinstance(stage.sink.error, FirstTokenTimeout)
    stage.assert_nothing_left()


def test_where_all_nodes_are_slow_none_is_shut_out() -> None:
    stage = Stage(3)
    run = stage.dispatch()
    stage.clock.advance(2 * MISSED_S + 10)
    assert outcomes(run) == [Outcome.TIMED_OUT, Outcome.TIMED_OUT, Outcome.RUNNING]
    stage.turn(run).answer(ANSWER)
    assert stage.sink.body == ANSWER
    again = stage.again()
    stage.clock.advance(20)
    stage.turn(again).answer(ANSWER)
    assert stage.sink.body == ANSWER


def test_a_late_node_loses_the_job_as_soon_as_another_comes() -> None:
    stage = Stage(2)
    stage.table.disconnect(node_id(2), unix_s=0.0)
    run = stage.dispatch()
    stage.clock.advance(10)
    assert outcomes(run) == [Outcome.RUNNING]
    stage.table.connect(node_id(2), some_specs(), now_s=stage.clock.now_s())
    stage.clock.advance(1)
    assert stage.turn(run).id == node_id(2)


def test_a_model_that_must_load_has_its_loading_predicted() -> None:
    cold = some_specs(a_model(state="on_disk", weights_bytes=8 << 30))
    stage = Stage(2, specs=cold)
    run = stage.dispatch()
    best = run.record.decision.best
    assert best is not None
    assert best.predicted_ttft_s > MISSED_S
    stage.clock.advance(2 * best.predicted_ttft_s)
    assert outcomes(run) == [Outcome.RUNNING]


def test_a_node_without_timed_jobs_is_held_against_what_others_took() -> None:
    slow = some_specs(a_model(measured=Speed(prefill_tps=100.0, decode_tps=50.0)))
    stage = Stage(2, specs=slow)
    run = stage.dispatch()
    stage.clock.advance(15)
    assert outcomes(run) == [Outcome.RUNNING], "four times 5 s are predicted"
    stage.turn(run).answer(ANSWER)
    for _ in range(TIMES_KEPT):
        stage.dispatcher._context.attempts.first_tokens.add(MODEL, 500, 0.5)
    run = stage.again()
    stage.clock.advance(MISSED_S)
    assert Outcome.TIMED_OUT in outcomes(run)


def test_time_in_which_the_gateway_itself_was_blocked_counts_against_no_node() -> None:
    stage = Stage()
    run = stage.dispatch()
    attempt = run._attempt
    assert attempt is not None
    attempt._due_s -= 5.0  # as if its timer had fired five seconds late
    attempt._began_s -= 5.0
    attempt.on_deadline()
    assert outcomes(run) == [Outcome.RUNNING]


# circuit breakers of nodes and models


def test_a_node_that_failed_gets_one_trial_at_a_time() -> None:
    stage = Stage(2)
    answer_all(stage, 6)
    run = stage.again()
    failing = stage.turn(run)
    failing.fail()
    stage.turn(run).answer(ANSWER)
    stage.clock.advance(OPEN_FIRST_S + 0.1)
    runs = [stage.again() for _ in range(4)]
    assert [run.record.attempts[0].node_id for run in runs].count(failing.id) <= 1


def test_a_node_that_answers_its_trial_is_as_good_as_before() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.turn(run).fail()
    assert shut(stage, node_id(1))
    stage.clock.advance(OPEN_FIRST_S)
    stage.turn(stage.again()).answer(ANSWER)
    assert not shut(stage, node_id(1))
    row = stage.table.get(node_id(1))
    assert row is not None
    assert row.suspect_until_s == 0.0


def test_a_failure_at_one_model_says_nothing_about_another() -> None:
    stage = Stage(2, specs=some_specs(a_model(), a_model(id="other")))
    run = stage.dispatch()
    failed = stage.turn(run)
    failed.fail()
    assert shut(stage, failed.id)
    assert not stage.table.is_shut(failed.id, "other", now_s=stage.clock.now_s())


def test_dropping_a_model_and_coming_back_washes_off_nothing() -> None:
    stage = Stage(1)
    for _ in range(2):
        stage.turn(stage.again()).fail()
        stage.clock.advance(OPEN_FIRST_S)
    assert shut(stage, node_id(1))
    stage.table.set_specs(node_id(1), some_specs(a_model(id="other")))
    stage.table.connect(node_id(1), some_specs(), now_s=stage.clock.now_s())
    assert shut(stage, node_id(1))


# hedging


def budgeted(count: int = 3) -> Stage:
    """A stage on which one hedge is saved up."""
    stage = Stage(count)
    for _ in range(round(1 / HEDGES_PER_REQUEST)):
        stage.dispatcher._context.hedges.note_request()
    return stage


def hedged(stage: Stage) -> tuple[JobRun, ScriptedNode, ScriptedNode]:
    """A job whose first node is slow, so that a second is asked: the run, and both nodes."""
    run = stage.dispatch()
    first = stage.turn(run)
    stage.clock.advance(HEDGED_S)
    assert outcomes(run) == [Outcome.RUNNING]
    (second,) = [node for node in stage.nodes.values() if node.opened and node is not first]
    return run, first, second


def test_the_hedge_wins_if_its_output_comes_first() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    second.answer(ANSWER)
    assert stage.sink.body == ANSWER
    assert outcomes(run) == [Outcome.CANCELLED, Outcome.DONE]
    assert first.cancelled == [1]
    assert stage.sink.headers["x-sparewatt-node"] == second.id
    assert run.record.attempts[0].delivered is None
    assert shut(stage, first.id), "it was slower than a node that began later"
    stage.assert_nothing_left()


def test_the_first_wins_if_its_output_comes_first() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    first.begin(text_event("a"))
    assert second.cancelled == [1]
    first.data(DONE)
    first.end()
    second.answer(ANSWER)
    assert stage.sink.body == text_event("a") + DONE
    assert outcomes(run) == [Outcome.CANCELLED, Outcome.DONE]
    assert run.record.attempts[-1].node_id == first.id
    assert not shut(stage, second.id)
    assert [move.attempt for move in run.record.reassignments] == []
    stage.assert_nothing_left()


def test_the_hedge_goes_on_alone_if_the_first_fails() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    first.fail()
    assert stage.sink.calls == []
    second.answer(ANSWER)
    assert stage.sink.body == ANSWER
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_the_first_goes_on_alone_if_the_hedge_fails() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    second.fail()
    assert shut(stage, second.id)
    first.answer(ANSWER)
    assert stage.sink.body == ANSWER
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_a_late_first_is_timed_out_and_the_hedge_goes_on() -> None:
    stage = budgeted()
    run, _first, second = hedged(stage)
    stage.clock.advance(MISSED_S - HEDGED_S)
    assert stage.turn(run) is second
    second.answer(ANSWER)
    assert outcomes(run) == [Outcome.TIMED_OUT, Outcome.DONE]
    stage.assert_nothing_left()


def test_two_that_race_and_refuse_are_a_verdict() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    second.answer(b"{}", status=400)
    assert stage.sink.calls == []
    first.answer(b"{}", status=400)
    assert stage.sink.calls == ["fail"]
    assert outcomes(run) == [Outcome.DONE] * 2
    stage.assert_nothing_left()


def test_the_first_refuses_and_the_hedge_contradicts_it() -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    first.answer(b"{}", status=400)
    second.answer(ANSWER)
    assert stage.sink.body == ANSWER
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    assert shut(stage, first.id)


@pytest.mark.parametrize("end", ["cancel", "time_out"])
def test_both_end_with_the_job(end: str) -> None:
    stage = budgeted()
    run, first, second = hedged(stage)
    getattr(run, end)()
    assert (first.cancelled, second.cancelled) == ([1], [1])
    stage.assert_nothing_left()


def test_without_budget_nobody_else_is_asked() -> None:
    stage = Stage()
    stage.dispatch()
    stage.clock.advance(HEDGED_S)
    assert sum(bool(node.opened) for node in stage.nodes.values()) == 1


def test_one_hedge_in_fifty_requests() -> None:
    stage = budgeted(5)
    for _ in range(3):
        run = stage.again()
        stage.clock.advance(HEDGED_S)
        run.cancel()
    assert sum(len(node.opened) for node in stage.nodes.values()) == 3 + 1


# answers in one piece


def test_an_answer_in_one_piece_is_streamed_and_put_together() -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    node = stage.turn(run)
    assert node.opened[0].stream
    assert json.loads(node.body)["stream"] is True
    streams(node, ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE, DONE)
    assert stage.sink.calls == []
    node.end()
    whole = json.loads(stage.sink.body)
    assert whole["choices"][0]["message"]["content"] == "Hello"
    assert whole["usage"]["completion_tokens"] == 2
    assert stage.sink.headers["content-type"] == "application/json"
    assert run.record.attempts[0].tokens == 2
    stage.assert_nothing_left()


def test_a_server_that_never_streams_is_taken_at_its_word() -> None:
    stage = Stage()
    stage.turn(stage.dispatch(stream=False)).answer(COMPLETION)
    assert stage.sink.body == COMPLETION


def test_a_node_that_never_begins_costs_an_answer_in_one_piece_little() -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    silent = stage.turn(run)
    silent.head()  # a head alone is no beginning
    stage.clock.advance(MISSED_S)
    assert stage.turn(run) is not silent
    streams(stage.turn(run), ANSWER)
    stage.turn(run).end()
    assert json.loads(stage.sink.body)["choices"][0]["message"]["content"] == "Hello"


def test_a_node_that_stalls_before_the_answer_is_whole_is_left_and_another_starts_over() -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    stalling = stage.turn(run)
    streams(stalling, text_event("lost"))
    stage.clock.advance(stage.rules.stall_floor_s + 0.2)
    assert stage.turn(run) is not stalling
    streams(stage.turn(run), ANSWER)
    stage.turn(run).end()
    assert json.loads(stage.sink.body)["choices"][0]["message"]["content"] == "Hello"
    assert run.record.attempts[0].delivered is None
    stage.assert_nothing_left()


def test_a_slow_writer_is_not_cut() -> None:
    stage = Stage(2, specs=some_specs(a_model(measured=Speed(prefill_tps=1000.0, decode_tps=0.5))))
    run = stage.dispatch(stream=False)
    node = stage.turn(run)
    streams(node, ROLE)
    for _ in range(20):
        node.data(text_event("a"))
        stage.clock.advance(6.0)
    node.data(FINISH, DONE)
    node.end()
    assert outcomes(run) == [Outcome.DONE]
    assert stage.clock.now_s() > NOW_S + 119


@pytest.mark.parametrize("broken", [b"data: <html>\n\n", b'data: {"error":{"message":"marker"}}\n\n', b"data: 5\n\n"])
def test_a_stream_that_is_none_fails_its_node(broken: bytes) -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    streams(stage.turn(run), broken)
    assert len(run.record.attempts) == 2
    assert "marker" not in str(run.record.attempts[0].reason)


def test_the_first_token_of_an_answer_in_one_piece_teaches_how_fast_the_node_reads() -> None:
    stage = Stage(1)
    for _ in range(3):
        run = stage.again(stream=False)
        stage.clock.advance(1.0)
        streams(stage.turn(run), text_event("a"))
        stage.turn(run).data(FINISH, DONE)
        stage.turn(run).end()
    row = stage.table.get(node_id(1))
    assert row is not None
    assert row.positions[MODEL].reading.count >= 1
