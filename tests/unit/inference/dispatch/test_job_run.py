"""What a client sees of its job until the first token, whatever the nodes do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparewatt.core.errors import (
    FirstTokenTimeout,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    ProtocolViolation,
)
from sparewatt.core.ids import MatchId, ModelId
from sparewatt.core.limits import ATTEMPTS_MAX, REFUSALS_MAX
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.protocol.link.frames import JobRequest
from sparewatt.protocol.link.node_report import Speed
from tests.unit.inference.nodes import MODEL, a_job, a_model, some_specs
from tests.unit.inference.scripted import (
    ANSWER,
    BODY,
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

Failure = Callable[[Stage, ScriptedNode], None]
MISSED_S = 2.6
"""Four times the 0.62 s that are predicted for a first token here."""


# an ordinary answer


def test_a_stream_reaches_the_client_byte_for_byte() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE, DONE)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


def test_a_stream_is_the_same_however_the_link_cuts_it() -> None:
    stage = Stage()
    run = stage.dispatch(wants_usage=True)
    wire = ROLE + text_event("Hel") + text_event("lo") + FINISH + USAGE + DONE
    stage.turn(run).answer(*(wire[at : at + 7] for at in range(0, len(wire), 7)))
    assert stage.sink.body == wire
    stage.assert_nothing_left()


def test_a_whole_reply_reaches_the_client_byte_for_byte() -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    node = stage.turn(run)
    node.begin(COMPLETION[:30], COMPLETION[30:])
    assert stage.sink.calls == []
    node.end()
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == COMPLETION
    assert stage.sink.headers["content-type"] == "application/json"
    assert run.record.attempts[0].tokens == 2
    stage.assert_nothing_left()


def test_the_node_gets_the_body_and_what_it_was_chosen_by() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    best = run.record.decision.best
    assert best is not None
    assert node.body == BODY
    assert node.opened == [
        JobRequest(
            path="/v1/chat/completions",
            model="llama-3-8b",
            body_bytes=len(BODY),
            stream=True,
            window_bytes=LINK_STREAM_WINDOW_BYTES,
            promised_ttft_s=best.predicted_ttft_s,
            prompt_tokens=500,
            job=run.job.match.id,
        )
    ]


def test_a_prediction_beyond_all_reason_still_fits_into_open() -> None:
    slow = some_specs(a_model(measured=Speed(prefill_tps=1e-3, decode_tps=1e-3)))
    stage = Stage(1, specs=slow)
    node = stage.turn(stage.dispatch(match=a_job(prompt_tokens=1 << 24)))
    assert node.opened[0].promised_ttft_s <= 1e6


def test_the_usage_chunk_passes_only_if_asked_for() -> None:
    for wants_usage in (True, False):
        stage = Stage()
        run = stage.dispatch(wants_usage=wants_usage)
        stage.turn(run).answer(text_event("a"), USAGE, DONE)
        assert (USAGE in stage.sink.body) is wants_usage
        assert run.record.attempts[0].tokens == 2


def test_the_role_is_held_until_the_first_token() -> None:
    stage = Stage()
    node = stage.turn(stage.dispatch())
    node.begin(ROLE)
    assert stage.sink.calls == []
    node.data(text_event("a"))
    assert stage.sink.body == ROLE + text_event("a")


def test_an_answer_without_a_single_token_is_an_answer() -> None:
    stage = Stage()
    stage.turn(stage.dispatch()).answer(ROLE, FINISH, DONE)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == ROLE + FINISH + DONE


def test_the_reply_says_who_served_it() -> None:
    stage = Stage()
    run = stage.dispatch()
    first = stage.turn(run)
    first.fail()
    second = stage.turn(run)
    second.answer(ANSWER)
    assert stage.sink.headers == {
        "content-type": "text/event-stream",
        "x-sparewatt-match-id": "match_test",
        "x-sparewatt-attempts": "2",
        "x-sparewatt-node": second.id,
        "x-sparewatt-region": "eu-west",
        "x-sparewatt-model": MODEL,
    }


def test_the_record_keeps_times_in_milliseconds_after_arrival() -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    stage.clock.advance(0.25)
    node.begin(text_event("a"))
    stage.clock.advance(0.5)
    node.data(DONE)
    node.end()
    attempt = run.record.attempts[0]
    assert (attempt.started_ms, attempt.first_token_ms, attempt.ended_ms, attempt.tokens) == (0.0, 250.0, 750.0, 1)


def test_a_job_is_reserved_while_it_runs_and_its_prompt_until_the_first_token() -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch())
    assert stage.reserved == [(1, 0.6, 600)]
    node.begin(text_event("a"))
    assert stage.reserved == [(1, 0, 600)]
    node.data(DONE)
    node.end()
    assert stage.reserved == [(0, 0, 0)]


def test_success_counts_for_the_node_and_teaches_the_typical_output() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.turn(run).answer(text_event("a"), USAGE, DONE)
    row = stage.table.get(stage.turn(run).id)
    assert row is not None
    assert (row.jobs_done, row.jobs_failed) == (1, 0)
    assert stage.table.typical_output_tokens(run.job.match.model) == 231


# failures before the first token


def _status(status: int) -> Failure:
    return lambda _, node: node.answer(b'{"error":{"message":"no"}}', status=status)


def _sends(*pieces: bytes) -> Failure:
    return lambda _, node: node.begin(ROLE, *pieces)


def _is_late(stage: Stage, node: ScriptedNode) -> None:
    node.begin(ROLE)
    stage.clock.advance(MISSED_S)


def _loses_link_after(*pieces: bytes) -> Failure:
    def act(_: Stage, node: ScriptedNode) -> None:
        node.begin(*pieces)
        node.lost()

    return act


FAILURES: dict[str, Failure] = {
    "fail frame": lambda _, node: node.fail(),
    "link lost": lambda _, node: node.lost(),
    "status 500": _status(500),
    "status 503": _status(503),
    "status 429": _status(429),
    "status 404": _status(404),
    "status 204": _status(204),
    "garbage": _sends(b"data: <html>\n\n"),
    "error event": _sends(b'data: {"error":{"message":"out of memory"}}\n\n'),
    "first token and garbage at once": _sends(text_event("lost") + b"data: <html>\n\n"),
    "whole answer and garbage at once": _sends(text_event("lost") + DONE + b"data: <html>\n\n"),
    "early end": lambda _, node: node.answer(ROLE),
    "empty reply": lambda _, node: node.answer(),
    "half an event": lambda _, node: node.answer(ROLE, b"data: {"),
    "no first token": lambda stage, _: stage.clock.advance(MISSED_S),
    "no first token after the role": _is_late,
    "failed after an empty answer": _loses_link_after(ROLE, DONE),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_before_the_first_token_is_invisible(failure: Failure) -> None:
    stage = Stage()
    run = stage.dispatch()
    first = stage.turn(run)
    failure(stage, first)
    second = stage.turn(run)
    assert second is not first
    assert stage.sink.calls == []
    second.answer(ROLE, text_event("Hel"), text_event("lo"), FINISH, DONE)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
    assert len(run.record.attempts) == 2
    stage.assert_nothing_left()


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_what_a_failed_node_says_later_is_not_heard(failure: Failure) -> None:
    stage = Stage()
    run = stage.dispatch()
    first = stage.turn(run)
    failure(stage, first)
    first.data(text_event("late"), DONE)
    first.end()
    stage.turn(run).answer(ANSWER)
    assert stage.sink.body == ANSWER


WHOLE_FAILURES: dict[str, Failure] = {
    "fail frame": lambda _, node: node.fail(),
    "link lost": lambda _, node: node.lost(),
    "status 500": _status(500),
    "garbage": lambda _, node: node.answer(b"<html>"),
    "cut short": lambda _, node: node.answer(COMPLETION[:-5]),
    "empty": lambda _, node: node.answer(),
    "lost after half": _loses_link_after(COMPLETION[:40]),
    "too late": lambda stage, _: stage.clock.advance(MISSED_S),
}


@pytest.mark.parametrize("failure", WHOLE_FAILURES.values(), ids=WHOLE_FAILURES.keys())
def test_a_failed_whole_reply_is_invisible(failure: Failure) -> None:
    stage = Stage()
    run = stage.dispatch(stream=False)
    first = stage.turn(run)
    failure(stage, first)
    assert stage.turn(run) is not first
    stage.turn(run).answer(COMPLETION)
    assert stage.sink.calls == ["start", "finish"]
    assert stage.sink.body == COMPLETION
    stage.assert_nothing_left()


def test_a_node_that_has_just_left_is_a_failed_attempt() -> None:
    stage = Stage(2)
    best = stage.dispatcher.dry_run(a_job(), ranking=BALANCED).best
    assert best is not None
    stage.links.pop(best.node_id)
    run = stage.dispatch()
    stage.turn(run).answer(ANSWER)
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_a_link_that_cannot_open_a_job_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(2)
    best = stage.dispatcher.dry_run(a_job(), ranking=BALANCED).best
    assert best is not None

    def refuse(*_: object) -> None:
        raise ProtocolViolation("this link has run out of stream numbers")

    monkeypatch.setattr(stage.links[best.node_id], "open", refuse)
    run = stage.dispatch()
    stage.turn(run).answer(ANSWER)
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_a_failed_node_is_suspect_and_a_refusing_one_is_not() -> None:
    stage = Stage()
    run = stage.dispatch()
    failing = stage.turn(run)
    failing.fail("backend_broke")
    refusing = stage.turn(run)
    refusing.fail("refused")
    by_id = {row.id: row for row in stage.table}
    assert by_id[failing.id].suspect_until_s > stage.clock.now_s()
    assert by_id[refusing.id].suspect_until_s == 0.0
    assert (by_id[failing.id].jobs_failed, by_id[refusing.id].jobs_failed) == (1, 0)


def test_at_most_three_nodes_fail_for_one_job() -> None:
    stage = Stage(6)
    run = stage.dispatch()
    for _ in range(ATTEMPTS_MAX):
        assert stage.sink.calls == []
        stage.turn(run).fail()
    assert stage.sink.calls == ["fail"]
    assert isinstance(stage.sink.error, JobFailed)
    assert len({attempt.node_id for attempt in run.record.attempts}) == ATTEMPTS_MAX
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


@pytest.mark.parametrize("refuse", [lambda n: n.fail("refused"), lambda n: n.answer(b"{}", status=503)])
def test_refusals_use_up_no_attempts(refuse: Callable[[ScriptedNode], None]) -> None:
    stage = Stage(6)
    run = stage.dispatch()
    for _ in range(REFUSALS_MAX):
        refuse(stage.turn(run))
    for _ in range(ATTEMPTS_MAX - 1):
        stage.turn(run).fail()
    stage.turn(run).answer(ANSWER)
    assert stage.sink.body == ANSWER
    assert len(run.record.attempts) == REFUSALS_MAX + ATTEMPTS_MAX


def test_refusals_are_bounded_and_end_in_no_capacity() -> None:
    stage = Stage(20)
    run = stage.dispatch()
    while not stage.sink.over:
        stage.turn(run).fail("refused")
    assert outcomes(run) == [Outcome.REFUSED] * (ATTEMPTS_MAX + REFUSALS_MAX)
    assert isinstance(stage.sink.error, NoCapacity)
    assert stage.sink.error.retry_after_s
    stage.assert_nothing_left()


def test_when_every_node_was_tried_the_job_fails() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    stage.turn(run).fail()
    stage.turn(run).fail()
    assert isinstance(stage.sink.error, JobFailed)
    assert len(run.record.attempts) == 2
    stage.assert_nothing_left()


def test_a_node_that_would_be_late_gets_the_job_after_all_when_nobody_else_can() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    stage.turn(run).fail()
    late = stage.turn(run)
    late.fail("refused")
    assert stage.turn(run) is late
    assert [opened.promised_ttft_s > 0 for opened in late.opened] == [True, False]
    late.answer(ANSWER)
    assert stage.sink.body == ANSWER
    stage.assert_nothing_left()


def test_a_node_is_asked_again_once_and_one_that_failed_never() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    stage.turn(run).fail("refused")
    stage.turn(run).fail()
    stage.turn(run).fail("refused")
    assert isinstance(stage.sink.error, JobFailed)
    assert outcomes(run) == [Outcome.REFUSED, Outcome.FAILED, Outcome.REFUSED]
    stage.assert_nothing_left()


def test_after_two_refusals_nothing_is_promised_so_that_the_next_node_does_not_refuse_too() -> None:
    stage = Stage(6)
    run = stage.dispatch()
    for _ in range(REFUSALS_MAX):
        assert stage.turn(run).opened[-1].promised_ttft_s > 0
        stage.turn(run).fail("refused")
    assert stage.turn(run).opened[-1].promised_ttft_s == 0


def test_when_all_nodes_time_out_it_is_a_timeout() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.clock.advance(ATTEMPTS_MAX * stage.rules.first_token_floor_s)
    assert outcomes(run) == [Outcome.TIMED_OUT] * ATTEMPTS_MAX
    assert isinstance(stage.sink.error, FirstTokenTimeout)
    assert all(stage.nodes[attempt.node_id].cancelled == [1] for attempt in run.record.attempts)
    stage.assert_nothing_left()


def test_a_slow_node_gets_a_multiple_of_what_was_predicted() -> None:
    slow = some_specs(a_model(measured=Speed(prefill_tps=25.0, decode_tps=50.0)))
    stage = Stage(1, specs=slow)
    run = stage.dispatch()
    stage.clock.advance(79.9)
    assert outcomes(run) == [Outcome.RUNNING]
    stage.clock.advance(0.2)
    assert outcomes(run) == [Outcome.TIMED_OUT]


def test_a_whole_reply_gets_a_multiple_of_its_predicted_finish() -> None:
    slow = some_specs(a_model(measured=Speed(prefill_tps=1000.0, decode_tps=1.0)))
    stage = Stage(1, specs=slow)
    run = stage.dispatch(stream=False)
    stage.clock.advance(800)
    assert outcomes(run) == [Outcome.RUNNING]
    stage.turn(run).answer(COMPLETION)
    assert stage.sink.body == COMPLETION


# no node


def test_an_unknown_model_fails_at_once_with_a_record() -> None:
    stage = Stage()
    run = stage.dispatch(match=a_job(model=ModelId("unknown")))
    assert isinstance(stage.sink.error, ModelNotFound)
    assert stage.sink.headers == {"x-sparewatt-match-id": "match_test", "x-sparewatt-attempts": "0"}
    assert stage.dispatcher.record(MatchId("match_test")) == run.record
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


@pytest.mark.parametrize("suffix", ["@zz", ":flor", ":floor@nowhere"])
def test_a_wrong_suffix_is_told_from_a_wrong_model(suffix: str) -> None:
    stage = Stage()
    stage.dispatch(match=a_job(model=ModelId(f"{MODEL}{suffix}")))
    assert isinstance(stage.sink.error, ModelNotFound)
    assert f"'{MODEL}' is, but '{suffix}' is no suffix" in stage.sink.error.message
    assert "':floor'" in stage.sink.error.message
