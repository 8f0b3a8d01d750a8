"""An answer that lost its node in the middle: who goes on with it, from where, and what the client sees of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from sparewatt.core.ids import NodeId
from sparewatt.core.limits import ATTEMPTS_MAX, REQUEST_BODY_BYTES_MAX
from sparewatt.inference.dispatch.failover import EMITTED_TEXT_BYTES_MAX
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import SEAMS_MAX, Gate, Job, Outcome
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.model import AllowedNodes
from sparewatt.protocol.link.node_report import Capability
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job, a_model, node_id, some_specs
from tests.unit.inference.scripted import DONE, FINISH, ROLE, USAGE, ScriptedNode, Stage, event, text_event

REQUEST: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": True}


def able(*ways: Capability) -> Stage:
    return Stage(5, specs=some_specs(a_model(capabilities=("chat", *(ways or ("continue_raw",))))))


def begin(
    stage: Stage, *words: str, wants_usage: bool = False, job: dict[str, Any] | None = None, **more: Any
) -> JobRun:
    """A job whose node has written these words."""
    run = stage.dispatcher.dispatch(
        a_request(more, wants_usage=wants_usage, **(job or {})), stage.sink, ranking=BALANCED
    )
    stage.turn(run).begin(ROLE, *map(text_event, words))
    return run


def a_request(more: dict[str, Any], *, wants_usage: bool = False, **job: Any) -> Job:
    body = msgspec.json.encode(REQUEST | more)
    return a_dispatched_job(body, match=a_job(model=MODEL), stream=True, wants_usage=wants_usage, **job)


def handed_over(node: ScriptedNode) -> tuple[dict[str, Any], str]:
    """The request and the text that a node was given."""
    body, n_bytes = node.latest_body, node.opened[-1].continue_bytes
    return msgspec.json.decode(body[: len(body) - n_bytes]), body[len(body) - n_bytes :].decode()


def chunks(stage: Stage) -> list[dict[str, Any]]:
    events = stage.sink.body.split(b"\n\n")
    return [msgspec.json.decode(each.removeprefix(b"data: ")) for each in events if each.startswith(b"data: {")]


def text(stage: Stage) -> str:
    found = [choice["delta"].get("content") for each in chunks(stage) for choice in each.get("choices", ())]
    return "".join(piece or "" for piece in found)


def error(stage: Stage) -> str:
    assert stage.sink.calls == ["start", "finish"]
    assert b"[DONE]" not in stage.sink.body
    return str(chunks(stage)[-1]["error"]["message"])


# going on


def test_the_next_node_gets_the_request_and_what_the_client_has() -> None:
    stage = able()
    run = begin(stage, "Hel", "lo é", max_tokens=10)
    first = stage.turn(run)
    first.lost()
    second = stage.turn(run)
    assert second is not first
    assert handed_over(second) == (REQUEST | {"max_tokens": 8}, "Hello é")
    assert second.opened[-1].job == first.opened[-1].job
    second.answer(ROLE, text_event(" world"), FINISH, DONE)
    assert text(stage) == "Hello é world"
    assert stage.sink.body.endswith(DONE)
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


def test_the_answer_has_one_name_one_role_and_one_finish() -> None:
    stage = able()
    run = begin(stage, "a")
    stage.turn(run).lost()
    theirs = {"id": "other", "created": 9, "model": "alias"}
    for delta, finish in (({"role": "assistant", "content": ""}, None), ({"content": "b"}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        data = b"data: " + msgspec.json.encode(theirs | {"choices": [choice]}) + b"\n\n"
        stage.turn(run).begin(data) if "role" in delta else stage.turn(run).data(data)
    stage.turn(run).data(DONE)
    stage.turn(run).end()
    assert {each["id"] for each in chunks(stage)} == {"c1"}
    assert stage.sink.body.count(b'"role"') == 1
    assert stage.sink.body.count(b'"finish_reason":"stop"') == 1


def test_usage_is_of_the_whole_answer_and_the_prompt_counts_once() -> None:
    stage = able()
    run = begin(stage, "a", "b", "c", wants_usage=True)
    stage.turn(run).lost()
    usage = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":13,"completion_tokens":2}}\n\n'
    stage.turn(run).answer(text_event("d"), text_event("e"), FINISH, usage, DONE)
    assert chunks(stage)[-1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    first, second = run.record.attempts
    assert (first.tokens, first.chars, first.carried_tokens) == (3, 3, 0)
    assert (second.tokens, second.carried_tokens, second.carried_chars) == (2, 3, 3)


def test_an_answer_goes_on_as_often_as_nodes_are_lost() -> None:
    stage = able()
    run = begin(stage, "a")
    stage.turn(run).lost()
    stage.turn(run).begin(text_event("b"))
    stage.turn(run).fail()
    assert handed_over(stage.turn(run))[1] == "ab"
    stage.turn(run).answer(text_event("c"), FINISH, DONE)
    assert text(stage) == "abc"
    assert [attempt.outcome for attempt in run.record.attempts] == [Outcome.FAILED, Outcome.FAILED, Outcome.DONE]
    nodes = [attempt.node_id for attempt in run.record.attempts]
    assert [(move.attempt, move.ranked[0].node_id) for move in run.record.reassignments] == [
        (1, nodes[1]),
        (2, nodes[2]),
    ]
    assert nodes[0] not in {each.node_id for move in run.record.reassignments for each in move.ranked}


def test_seams_are_bounded() -> None:
    stage = Stage(SEAMS_MAX + 3, specs=some_specs(a_model(capabilities=("continue_raw",))))
    run = begin(stage, "a")
    for _ in range(SEAMS_MAX):
        stage.turn(run).fail()
        stage.turn(run).begin(text_event("b"))
    stage.turn(run).fail()
    error(stage)
    assert len(run.record.attempts) == SEAMS_MAX + 1


def test_nodes_that_bring_nothing_are_bounded_in_the_middle_too() -> None:
    stage = able()
    run = begin(stage, "a")
    stage.turn(run).fail()
    for _ in range(ATTEMPTS_MAX):
        stage.turn(run).fail()
    error(stage)
    stage.assert_nothing_left()


def test_a_node_that_refuses_or_finds_fault_in_the_middle_is_passed_by() -> None:
    stage = able()
    run = begin(stage, "a")
    stage.turn(run).lost()
    stage.turn(run).fail("refused")
    stage.turn(run).answer(b'{"error":{"message":"too long"}}', status=400)
    stage.turn(run).answer(text_event("b"), FINISH, DONE)
    assert text(stage) == "ab"


def piece(name: str, text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": name, "object": "text_completion", "choices": [choice]}) + b"\n\n"


@pytest.mark.parametrize("limit", [None, 1])
def test_a_text_completion_goes_on_too(limit: int | None) -> None:
    stage = able()
    body = msgspec.json.encode({"model": MODEL, "prompt": "Once", "max_tokens": limit})
    job = a_request({})
    call = msgspec.structs.replace(job.call, path="/v1/completions")
    job = msgspec.structs.replace(job, body=body, call=call)
    run = stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED)
    stage.turn(run).begin(piece("a", " upon"))
    stage.turn(run).lost()
    if limit is None:
        assert handed_over(stage.turn(run))[1] == " upon"
        stage.turn(run).answer(piece("b", " a time"), piece("b", "", "stop"), DONE)
    told = chunks(stage)
    assert "".join(each["choices"][0]["text"] for each in told) == (" upon" if limit else " upon a time")
    assert {each["object"] for each in told} == {"text_completion"}
    assert told[-1]["choices"][0]["finish_reason"] == ("length" if limit else "stop")
    assert stage.sink.body.endswith(DONE)


# who may


def test_only_nodes_that_say_they_can_go_on_are_asked() -> None:
    stage = Stage(3)
    stage.table.set_specs(node_id(2), some_specs(a_model(capabilities=("continue_raw",))))
    run = begin(stage, "a")
    if run.record.attempts[0].node_id == node_id(2):
        stage.turn(run).lost()
        assert "no other node can continue" in error(stage)
    else:
        stage.turn(run).lost()
        assert run.record.attempts[-1].node_id == node_id(2)


class OnlyThese:
    """Implements Gate."""

    near: str | None = None

    def __init__(self, *allowed: NodeId) -> None:
        self._allowed = frozenset(allowed)

    def stages(self) -> Sequence[AllowedNodes | None]:
        return [AllowedNodes(self._allowed)]

    def payer_nodes(self) -> Sequence[NodeId]:
        return ()

    def relaxations(self) -> list[str]:
        return []

    def admits(self, node: NodeId) -> bool:
        return node in self._allowed


def test_a_continuation_goes_only_where_the_requests_policy_lets_it() -> None:
    gate: Gate = OnlyThese(node_id(1), node_id(4))
    stage = able()
    run = begin(stage, "a", job={"gate": gate})
    stage.turn(run).lost()
    assert {attempt.node_id for attempt in run.record.attempts} == {node_id(1), node_id(4)}
    stage.turn(run).lost()
    assert "no other node can continue" in error(stage)


@pytest.mark.parametrize("job", [{"allow_resume": False}, {"attempts_max": 1}], ids=["no resume", "no fallbacks"])
def test_a_request_may_opt_out(job: dict[str, Any]) -> None:
    stage = able()
    run = begin(stage, "a", job=job)
    stage.turn(run).lost()
    assert "policy" in error(stage)
    assert len(run.record.attempts) == 1


TOOL = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


@pytest.mark.parametrize(
    "more",
    [{"tools": [TOOL]}, {"logprobs": True}, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}],
)
def test_what_only_a_chat_endpoint_does_right_needs_a_node_that_takes_up_a_message(more: dict[str, Any]) -> None:
    stage = able("continue_raw")
    run = begin(stage, "a", **more)
    stage.turn(run).lost()
    error(stage)
    stage = able("continue_prefill")
    run = begin(stage, "a", **more)
    stage.turn(run).lost()
    stage.turn(run).answer(text_event("b"), FINISH, DONE)
    assert text(stage) == "ab"


@pytest.mark.parametrize("more", [{"n": 2}, {"response_format": SCHEMA}, {"guided_regex": "a+"}])
def test_what_cannot_be_cut_in_two_ends_in_an_error_object(more: dict[str, Any]) -> None:
    stage = able("continue_raw", "continue_prefill")
    run = begin(stage, "a", **more)
    stage.turn(run).lost()
    assert "cannot be continued" in error(stage)


@pytest.mark.parametrize("delta", [{"tool_calls": [{"index": 0}]}, {"reasoning_content": "hm"}])
def test_more_than_text_ends_in_an_error_object(delta: dict[str, Any]) -> None:
    stage = able("continue_raw", "continue_prefill")
    run = begin(stage, "a")
    stage.turn(run).data(event(delta))
    stage.turn(run).lost()
    assert "more than plain text" in error(stage)


def test_a_tool_call_starts_over_if_nothing_of_it_was_sent() -> None:
    stage = able("continue_prefill")
    run = begin(stage, tools=[TOOL])
    stage.turn(run).lost()
    assert stage.turn(run).opened[-1].continue_bytes == 0
    stage.turn(run).answer(event({"tool_calls": [{"index": 0}]}), FINISH, DONE)
    assert stage.sink.body.endswith(DONE)


def test_an_answer_too_long_to_keep_ends_in_an_error_object() -> None:
    stage = able()
    run = begin(stage)
    for _ in range(EMITTED_TEXT_BYTES_MAX // 50_000 + 2):
        stage.turn(run).data(text_event("x" * 50_000))
        run.consumed(len(stage.sink.pieces[-1]))
    stage.turn(run).lost()
    assert "more than plain text" in error(stage)


def test_a_request_that_leaves_no_room_for_the_text_ends_in_an_error_object() -> None:
    stage = able()
    job = a_request({})
    job = msgspec.structs.replace(job, body=job.body + b" " * (REQUEST_BODY_BYTES_MAX - len(job.body)))
    run = stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED)
    stage.turn(run).begin(ROLE, text_event("a"))
    stage.turn(run).lost()
    assert "too large" in error(stage)


# waiting for somebody


def test_a_broken_answer_waits_for_a_node_that_is_away_for_a_moment() -> None:
    stage = able()
    run = begin(stage, "a")
    others = [node for node in stage.nodes.values() if node is not stage.turn(run)]
    for node in others:
        stage.table.disconnect(node.id, unix_s=0)
    stage.turn(run).lost()
    stage.clock.advance(3)
    assert not stage.sink.over
    specs = some_specs(a_model(capabilities=("continue_raw",)))
    stage.table.connect(others[0].id, specs, now_s=stage.clock.now_s())
    stage.clock.advance(1)
    stage.turn(run).answer(text_event("b"), FINISH, DONE)
    assert text(stage) == "ab"
    stage.assert_nothing_left()


def test_it_does_not_wait_for_ever() -> None:
    stage = able()
    run = begin(stage, "a")
    for node in stage.nodes.values():
        stage.table.disconnect(node.id, unix_s=0)
    stage.turn(run).lost()
    stage.clock.advance(stage.rules.resume_wait_s + 1)
    assert "no other node can continue" in error(stage)
    stage.assert_nothing_left()


def test_a_client_that_leaves_meanwhile_ends_the_waiting() -> None:
    stage = able()
    run = begin(stage, "a")
    for node in stage.nodes.values():
        stage.table.disconnect(node.id, unix_s=0)
    stage.turn(run).lost()
    run.cancel()
    assert run.record.outcome is Outcome.CANCELLED
    stage.assert_nothing_left()


# silence


def test_a_silent_node_is_given_up_by_its_own_pace() -> None:
    stage = able()
    run = begin(stage, "a")
    for _ in range(5):
        stage.clock.advance(0.1)
        stage.turn(run).data(text_event("a"))
    stage.clock.advance(stage.rules.stall_floor_s + 0.2)
    assert [attempt.outcome for attempt in run.record.attempts] == [Outcome.TIMED_OUT, Outcome.RUNNING]


def test_a_node_that_pauses_by_nature_is_given_more_time() -> None:
    stage = able()
    run = begin(stage, "a")
    for _ in range(3):
        stage.clock.advance(1)
        stage.turn(run).data(text_event("a"))
    stage.clock.advance(7)
    assert len(run.record.attempts) == 1
    stage.clock.advance(2)
    assert len(run.record.attempts) == 2


@pytest.mark.parametrize("job", [{"allow_resume": False}])
def test_where_nobody_else_can_help_a_silent_node_may_rest(job: dict[str, Any]) -> None:
    stage = able()
    run = begin(stage, "a", job=job)
    stage.clock.advance(stage.rules.idle_s - 1)
    assert not stage.sink.over
    stage.clock.advance(2)
    assert "silent" in error(stage)
    assert len(run.record.attempts) == 1


# the end


def test_an_answer_that_lacks_only_its_end_is_ended_here() -> None:
    stage = able()
    run = begin(stage, "a", "b", wants_usage=True)
    stage.turn(run).data(FINISH)
    stage.turn(run).lost()
    assert stage.sink.body.endswith(DONE)
    assert stage.sink.body.count(b'"finish_reason":"stop"') == 1
    assert chunks(stage)[-1]["usage"]["completion_tokens"] == 2
    assert len(run.record.attempts) == 1
    assert run.record.outcome is Outcome.DONE


def test_what_the_node_had_counted_is_told_in_its_place() -> None:
    stage = able()
    run = begin(stage, "a", "b", wants_usage=True)
    stage.turn(run).data(FINISH, USAGE)
    stage.turn(run).lost()
    assert chunks(stage)[-1]["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def test_an_answer_as_long_as_it_may_be_is_ended_here() -> None:
    stage = able()
    run = begin(stage, "a", "b", max_completion_tokens=2)
    stage.turn(run).lost()
    assert chunks(stage)[-1]["choices"][0]["finish_reason"] == "length"
    assert stage.sink.body.endswith(DONE)
    assert run.record.outcome is Outcome.DONE


def test_a_stop_text_that_straddles_the_seam_is_seen() -> None:
    stage = able()
    run = begin(stage, "a", " EN", stop=["END"])
    stage.turn(run).lost()
    second = stage.turn(run)
    second.begin(ROLE, text_event("D"), text_event(" and more"))
    assert text(stage) == "a EN"
    assert chunks(stage)[-1]["choices"][0]["finish_reason"] == "stop"
    assert stage.sink.body.endswith(DONE)
    assert second.cancelled == [1]
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


def test_what_only_looks_like_a_stop_text_is_held_and_then_sent() -> None:
    stage = able()
    run = begin(stage, "a", " E", stop="END")
    stage.turn(run).lost()
    second = stage.turn(run)
    second.begin(text_event("N"))
    assert text(stage) == "a E"
    second.data(text_event("TER"))
    assert text(stage) == "a ENTER"
    second.data(FINISH, DONE)
    second.end()
    assert stage.sink.body.endswith(DONE)
    assert run.record.attempts[-1].tokens == 2


def test_a_beginning_of_a_stop_text_at_the_very_end_is_text() -> None:
    stage = able()
    run = begin(stage, "E", stop="END")
    stage.turn(run).lost()
    stage.turn(run).answer(text_event("N"), FINISH, DONE)
    assert text(stage) == "EN"
    assert stage.sink.body.endswith(DONE)


# credit


def test_what_the_client_takes_of_the_first_part_is_no_credit_for_the_second_node() -> None:
    stage = able()
    run = begin(stage, "a", "b")
    before = len(stage.sink.body)
    stage.turn(run).lost()
    second = stage.turn(run)
    second.begin(ROLE, text_event("c"))
    run.consumed(before)
    assert second.credit_bytes < second.sent_bytes
    run.consumed(len(stage.sink.body) - before)
    assert second.credit_bytes == second.sent_bytes
