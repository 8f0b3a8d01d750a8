"""What a client sees of its job, whatever the nodes do."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from sparewatt.core.errors import (
    BodyTooLarge,
    FirstTokenTimeout,
    JobFailed,
    ModelNotFound,
    NoCapacity,
    ProtocolViolation,
    ShuttingDown,
    UnprocessableContent,
    UnsupportedMediaType,
)
from sparewatt.core.ids import MatchId, ModelId, NodeId
from sparewatt.core.limits import ATTEMPTS_MAX, MATCHES_KEPT, REFUSALS_MAX
from sparewatt.inference.dispatch.attempt import LINK_STREAM_WINDOW_BYTES
from sparewatt.inference.dispatch.dispatcher import MatchRing
from sparewatt.inference.dispatch.job_run import JobRun, RefusedByServer
from sparewatt.inference.dispatch.model import DispatchRules, Outcome
from sparewatt.inference.matcher.formula import BALANCED, RANKINGS, Ranking
from sparewatt.inference.prompt import BLOCK_TOKENS
from sparewatt.protocol.link.frames import JobEnd, JobFailure, JobReplyHead, JobRequest
from sparewatt.protocol.link.node_report import NodeLoad, Speed
from tests.unit.inference.nodes import MODEL, a_job, a_model, node_id, some_specs
from tests.unit.inference.scripted import (
    BODY,
    COMPLETION,
    DONE,
    FINISH,
    ROLE,
    USAGE,
    RecordingSink,
    ScriptedNode,
    Stage,
    text_event,
)

ANSWER = ROLE + text_event("Hel") + text_event("lo") + FINISH + DONE
Failure = Callable[[Stage, ScriptedNode], None]


def outcomes(run: JobRun) -> list[Outcome]:
    return [attempt.outcome for attempt in run.record.attempts]


def error_of(stage: Stage) -> dict[str, object]:
    """The in-band error object, which must be the last event."""
    last = stage.sink.body.split(b"\n\n")[-2]
    found: dict[str, object] = msgspec.json.decode(last.removeprefix(b"data: "))["error"]
    return found


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
    assert stage.reserved == [(1, 0.5, 600)]
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
    stage.clock.advance(stage.rules.first_token_floor_s)


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
    "no first token": lambda stage, _: stage.clock.advance(stage.rules.first_token_floor_s),
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
    "too late": lambda stage, _: stage.clock.advance(stage.rules.whole_reply_floor_s),
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
    best = stage.dispatcher.dry_run(a_job(), ranking=_balanced()).best
    assert best is not None
    stage.links.pop(best.node_id)
    run = stage.dispatch()
    stage.turn(run).answer(ANSWER)
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_a_link_that_cannot_open_a_job_is_a_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(2)
    best = stage.dispatcher.dry_run(a_job(), ranking=_balanced()).best
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


# the request's own fault


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RefusedByServer), (413, BodyTooLarge), (415, UnsupportedMediaType), (422, UnprocessableContent)],
)
def test_what_the_model_server_finds_wrong_with_a_request_is_final(status: int, kind: type[Exception]) -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(b'{"error":{"message":"max_tokens is too large"}}', status=status)
    assert stage.sink.calls == ["fail"]
    assert type(stage.sink.error) is kind
    assert stage.sink.error is not None
    assert (stage.sink.error.message, stage.sink.error.status) == ("max_tokens is too large", status)
    assert len(run.record.attempts) == 1
    row = stage.table.get(run.record.attempts[0].node_id)
    assert row is not None
    assert row.jobs_failed == 0
    stage.assert_nothing_left()


def test_a_fault_without_a_message_is_still_told() -> None:
    stage = Stage()
    stage.turn(stage.dispatch()).answer(b"nonsense", status=400)
    assert stage.sink.error is not None
    assert stage.sink.error.message == "the model server answered 400"


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


# the dispatcher


def test_records_are_a_ring() -> None:
    assert MATCHES_KEPT == 10_000
    stage = Stage()
    stage.dispatcher._ring = MatchRing(2)
    for number in range(3):
        stage.dispatch(match=a_job(id=MatchId(f"match_{number}")))
    assert stage.dispatcher.record(MatchId("match_0")) is None
    assert stage.dispatcher.record(MatchId("match_1")) is not None
    assert stage.dispatcher.record(MatchId("match_2")) is not None
    assert stage.dispatcher.running == 3


def test_a_dry_run_sends_and_reserves_nothing() -> None:
    stage = Stage()
    decision = stage.dispatcher.dry_run(a_job(), ranking=_balanced())
    assert decision.best is not None
    assert all(not node.opened for node in stage.nodes.values())
    stage.assert_nothing_left()


def _balanced() -> Ranking:
    return RANKINGS["balanced"]


def test_an_attempt_that_is_over_is_deaf() -> None:
    """Even if a link forgot to forget it."""
    stage = Stage()
    run = stage.dispatch()
    listener = stage.turn(run).link._streams[1].listener
    run.cancel()
    listener.on_head(JobReplyHead(status=200))
    listener.on_data(ANSWER)
    listener.on_data(b"data: <html>\n\n")
    listener.on_end(JobEnd(load=NodeLoad()))
    listener.on_fail(JobFailure(code="link_lost", message="gone"))
    assert stage.sink.calls == []
    assert run.record.outcome is Outcome.CANCELLED
    stage.assert_nothing_left()


# what an answer teaches about its node

TOKENS = 21


def answer_slowly(stage: Stage, *, factor: float, stream: bool = True) -> JobRun:
    """One answer at `factor` times the time per token that was predicted, by the node whose turn it is."""
    run = stage.dispatch(stream=stream)
    best = run.record.decision.best
    assert best is not None
    step_s = best.parts[5] / run.job.match.output_tokens * learned_speed(stage, best.node_id)
    node = stage.turn(run)
    node.head()
    for _ in range(TOKENS):
        node.data(text_event("a"))
        run.consumed(1 << 20)
        stage.clock.advance(factor * step_s)
    stage.clock.advance(-factor * step_s)  # the last token is the end
    node.data(DONE)
    node.end()
    stage.sink = RecordingSink()
    return run


def learned_speed(stage: Stage, node: NodeId) -> float:
    row = stage.table.get(node)
    assert row is not None
    return math.exp(-max(0.0, row.slowness))


def test_a_node_that_keeps_what_it_promised_is_believed() -> None:
    stage = Stage(1)
    answer_slowly(stage, factor=1.0)
    assert learned_speed(stage, node_id(1)) == pytest.approx(1.0)


def test_a_node_three_times_slower_than_its_report_is_expected_to_be() -> None:
    stage = Stage(1)
    for _ in range(25):
        answer_slowly(stage, factor=3.0)
    assert learned_speed(stage, node_id(1)) == pytest.approx(1 / 3, rel=0.05)


def share_of_first(stage: Stage, *, jobs: int = 100) -> float:
    """How many of some jobs, one at a time, would go to node 1."""
    picks = [stage.dispatcher.dry_run(a_job(id=MatchId(f"match_{n}")), ranking=BALANCED).best for n in range(jobs)]
    return sum(pick is not None and pick.node_id == node_id(1) for pick in picks) / jobs


def teach(stage: Stage, *, factor: float) -> None:
    """Node 1 answers at its own pace, the others do nothing meanwhile."""
    for other in list(stage.table):
        if other.id != node_id(1):
            stage.table.disconnect(other.id, unix_s=0)
    for _ in range(20):
        answer_slowly(stage, factor=factor)
    for number in range(2, len(stage.table) + 1):
        stage.table.connect(node_id(number), some_specs(), now_s=stage.clock.now_s())


def test_a_node_slower_than_its_report_loses_its_share() -> None:
    stage = Stage(4)
    assert share_of_first(stage) == pytest.approx(0.25, abs=0.12)
    teach(stage, factor=3.0)
    assert share_of_first(stage) == 0


def test_a_node_faster_than_its_report_gains_nothing() -> None:
    stage = Stage(4)
    before = stage.dispatcher.dry_run(a_job(), ranking=BALANCED)
    teach(stage, factor=1 / 3)
    after = stage.dispatcher.dry_run(a_job(), ranking=BALANCED)
    assert learned_speed(stage, node_id(1)) == 1.0
    assert share_of_first(stage) == pytest.approx(0.25, abs=0.12)
    assert {c.node_id: c.parts[5] for c in after.ranked} == {c.node_id: c.parts[5] for c in before.ranked}


def test_a_client_that_reads_slowly_teaches_nothing_about_the_node() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(text_event("a"))
    node.data(text_event("x" * (node.may_send_bytes - len(text_event("")))))
    assert node.may_send_bytes == 0
    stage.clock.advance(50)
    run.consumed(len(stage.sink.body))
    node.data(*[text_event("a")] * 20, DONE)
    node.end()
    assert stage.sink.calls == ["start", "finish"]
    assert learned_speed(stage, node.id) == 1.0


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_a_few_tokens_teach_nothing(tokens: int) -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch())
    node.begin(text_event("a"))
    stage.clock.advance(20)
    node.data(*[text_event("a")] * (tokens - 1), DONE)
    node.end()
    assert learned_speed(stage, node.id) == 1.0


def test_an_answer_that_is_not_streamed_teaches_nothing() -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch(stream=False))
    stage.clock.advance(100)
    node.answer(COMPLETION)
    assert learned_speed(stage, node.id) == 1.0


def test_a_policy_that_ranks_by_score_promises_and_teaches_all_the_same() -> None:
    stage = Stage(1)
    node = stage.turn(stage.dispatch(ranking=RANKINGS["neuralgrid"]))
    assert node.opened[0].promised_ttft_s > 0
    node.begin(text_event("a"))
    stage.clock.advance(20)
    node.data(*[text_event("a")] * 20, DONE)
    node.end()
    assert learned_speed(stage, node.id) < 1.0


# what outlives the ring


def test_a_failure_waits_to_be_stored() -> None:
    stage = Stage(0)
    run = stage.dispatch()
    assert stage.dispatcher.explanations.take(9) == [run.record]
    assert len(stage.dispatcher.explanations) == 0


def test_a_running_job_does_not_wait_to_be_stored() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    assert len(stage.dispatcher.explanations) == 0
    for _ in range(3):
        stage.turn(run).fail()
    assert len(stage.dispatcher.explanations) == 1


def test_the_last_records_come_latest_first() -> None:
    stage = Stage(0)
    for n in range(5):
        stage.sink = RecordingSink()
        stage.dispatch(match=a_job(id=MatchId(f"match_{n}")))
    assert [record.id for record in stage.dispatcher.last_records(2)] == ["match_4", "match_3"]


# whose fault an error is


NO_IMAGES = b'{"error":{"message":"image input is not supported"}}'


def _failures(stage: Stage) -> list[int]:
    return [row.jobs_failed for row in stage.table]


def test_an_error_that_two_servers_answer_alike_is_the_requests_own() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(NO_IMAGES, status=500)
    stage.turn(run).answer(NO_IMAGES, status=500)
    assert stage.sink.error is not None
    assert (stage.sink.error.status, stage.sink.error.message) == (400, "image input is not supported")
    assert len(run.record.attempts) == 2
    assert _failures(stage) == [0] * 5
    stage.assert_nothing_left()


def test_an_error_that_another_node_does_not_make_is_the_nodes_own() -> None:
    stage = Stage()
    run = stage.dispatch()
    guilty = stage.turn(run)
    guilty.answer(NO_IMAGES, status=500)
    stage.turn(run).answer(ANSWER)
    row = stage.table.get(guilty.id)
    assert row is not None
    assert (row.jobs_failed, sum(_failures(stage))) == (1, 1)
    assert row.suspect_until_s > stage.clock.now_s()


def test_different_errors_are_nobodys_word_against_the_request() -> None:
    stage = Stage()
    run = stage.dispatch()
    for number in range(3):
        stage.turn(run).answer(b'{"error":{"message":"broke %d"}}' % number, status=500)
    assert stage.sink.error is not None
    assert stage.sink.error.status == 502


@pytest.mark.parametrize("pause_s", [0.1, 0.2, 0.3, 0.7, 1 / 3, 1e-9, 59.999])
def test_silence_ends_an_answer_whatever_the_floats_say(pause_s: float) -> None:
    stage = Stage()
    run = stage.dispatch()
    node = stage.turn(run)
    node.begin(ROLE, text_event("a"))
    stage.clock.advance(pause_s)
    node.data(text_event("b"))
    stage.clock.advance(stage.rules.idle_s + 1)
    assert run.record.outcome is Outcome.FAILED
    stage.assert_nothing_left()


# prefixes


KEEPING = some_specs(a_model(prefix_cache_tokens=1 << 20))
LONG = a_job(prompt_tokens=4000)
PREFIX = (11, 12, 13, 14)


def test_the_next_prompt_that_begins_alike_goes_where_it_was_read_and_is_told_so() -> None:
    stage = Stage(specs=KEEPING)
    first = stage.dispatch(match=LONG, prefix=PREFIX)
    node = stage.turn(first)
    node.answer(ANSWER)
    second = stage.again(match=a_job(id=MatchId("match_2"), prompt_tokens=4000), prefix=(*PREFIX, 15))
    assert stage.turn(second) is node
    best = second.record.decision.best
    assert best is not None
    assert best.cached_tokens == node.opened[-1].cached_tokens == 4 * BLOCK_TOKENS
    assert node.opened[0].cached_tokens == 0
    assert [backlog_s for _, backlog_s, _ in stage.reserved if backlog_s] == [(4000 - 4 * BLOCK_TOKENS) / 1000]
    node.answer(ANSWER)
    stage.assert_nothing_left()


def test_a_prompt_that_was_never_read_to_its_end_is_not_remembered() -> None:
    stage = Stage(1, specs=KEEPING)
    run = stage.dispatch(match=LONG, prefix=PREFIX)
    run.cancel()
    assert len(stage.prefixes) == 0


def test_nodes_that_keep_nothing_are_not_remembered() -> None:
    stage = Stage(1)
    stage.turn(stage.dispatch(match=LONG, prefix=PREFIX)).answer(ANSWER)
    assert len(stage.prefixes) == 0


# broken off from above


def test_a_job_that_is_broken_off_ends_in_an_error_object_once_its_reply_has_begun() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).begin(ROLE, text_event("Hel"))
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert error_of(stage)["code"] == "shutting_down"
    assert stage.sink.over
    assert DONE not in stage.sink.body
    assert stage.turn(run).cancelled == [1]
    assert (run.record.outcome, run.record.stream_error_code) == (Outcome.FAILED, "shutting_down")
    stage.assert_nothing_left()


def test_a_job_that_is_broken_off_before_its_first_token_is_refused() -> None:
    stage = Stage()
    stage.dispatch()
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert stage.sink.calls == ["fail"]
    assert isinstance(stage.sink.error, ShuttingDown)
    stage.assert_nothing_left()


def test_a_job_that_lacks_nothing_but_its_end_is_not_broken_off() -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).begin(ROLE, text_event("Hel"), text_event("lo"), FINISH, USAGE, DONE)
    stage.dispatcher.abort_all(ShuttingDown("It stops."))
    assert stage.sink.body == ANSWER
    assert run.record.outcome is Outcome.DONE
