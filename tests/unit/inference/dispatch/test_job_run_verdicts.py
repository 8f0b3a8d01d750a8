"""One node's word is no verdict: what two nodes say reaches the client, in our words."""

from __future__ import annotations

import pytest

from sparewatt.core.errors import BodyTooLarge, JobFailed, UnprocessableContent, UnsupportedMediaType
from sparewatt.core.ids import AccountId
from sparewatt.inference.dispatch.failure_reasons import ContextTooLong, RefusedByServer
from sparewatt.inference.dispatch.model import Outcome
from tests.unit.inference.nodes import MODEL, a_model, node_id, some_specs
from tests.unit.inference.scripted import ANSWER, DONE, ROLE, Stage, outcomes, text_event

MARKER = "marker-of-a-stranger"
MARKED = b'{"error":{"message":"%b","type":"%b"}}' % (MARKER.encode(), MARKER.encode())
LLAMA_CONTEXT = (
    b'{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8192 tokens), try '
    b'increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}'
)
VLLM_CONTEXT = (
    b'{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, you requested 9000 tokens.",'
    b'"type":"BadRequestError","param":null,"code":400}}'
)
LACKS = b'{"error":{"message":"logit_bias is not supported"}}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RefusedByServer), (413, BodyTooLarge), (415, UnsupportedMediaType), (422, UnprocessableContent)],
)
def test_what_two_model_servers_find_wrong_with_a_request_is_final(status: int, kind: type[Exception]) -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=status)
    assert stage.sink.calls == []
    stage.turn(run).answer(b"nonsense", status=status)
    assert stage.sink.calls == ["fail"]
    assert type(stage.sink.error) is kind
    assert stage.sink.error is not None
    assert stage.sink.error.status == status
    assert "2 model servers" in stage.sink.error.message
    assert outcomes(run) == [Outcome.DONE] * 2
    assert sum(row.jobs_failed for row in stage.table) == 0
    stage.assert_nothing_left()


def test_the_words_of_a_model_server_reach_neither_client_nor_record() -> None:
    stage = Stage(3)
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=400)
    stage.turn(run).fail("backend_broke", message=MARKER)
    stage.turn(run).begin(ROLE, b'data: {"error":{"message":"%b"}}\n\n' % MARKER.encode())
    assert stage.sink.error is not None
    assert MARKER not in stage.sink.error.message
    assert all(MARKER not in (attempt.reason or "") for attempt in run.record.attempts)
    assert [(attempt.reason or "").partition(":")[0] for attempt in run.record.attempts[:2]] == [
        "status 400",
        "backend_broke",
    ]


def test_a_node_that_refuses_what_another_does_has_failed() -> None:
    stage = Stage()
    run = stage.dispatch()
    liar = stage.turn(run)
    liar.answer(MARKED, status=400)
    honest = stage.turn(run)
    honest.begin(text_event("a"))  # its first token is enough
    row = stage.table.get(liar.id)
    assert row is not None
    assert (row.jobs_failed, row.suspect_until_s > stage.clock.now_s()) == (1, True)
    honest.data(DONE)
    honest.end()
    assert outcomes(run) == [Outcome.FAILED, Outcome.DONE]
    stage.assert_nothing_left()


def test_the_refusal_of_the_only_node_stands_in_our_words() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=400)
    assert isinstance(stage.sink.error, RefusedByServer)
    assert stage.sink.error.message == (
        f"The only model server of '{MODEL}' that could take the request rejected the request (bad_request). "
        "Check its messages, tools and parameters."
    )
    assert outcomes(run) == [Outcome.DONE]


def test_a_refusal_stands_if_all_others_are_full() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=400)
    stage.turn(run).answer(b"{}", status=503)
    assert isinstance(stage.sink.error, RefusedByServer)


def test_a_refusal_is_no_verdict_if_the_others_failed_otherwise() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=400)
    stage.turn(run).fail()
    assert isinstance(stage.sink.error, JobFailed)


def test_the_second_opinion_is_of_another_owner() -> None:
    stage = Stage(4)
    for number, owner in enumerate(("a", "a", "a", "b"), start=1):
        stage.table.set_owner(node_id(number), AccountId(owner))
    run = stage.dispatch()
    first = stage.turn(run)
    first.answer(MARKED, status=400)
    owners = [attempt.owner for attempt in run.record.attempts]
    assert set(owners) == {"a", "b"}
    stage.turn(run).answer(MARKED, status=400)
    assert isinstance(stage.sink.error, RefusedByServer)


def test_two_nodes_of_the_only_owner_agree() -> None:
    stage = Stage(3)
    for number in (1, 2, 3):
        stage.table.set_owner(node_id(number), AccountId("a"))
    run = stage.dispatch()
    stage.turn(run).answer(MARKED, status=400)
    stage.turn(run).answer(MARKED, status=400)
    assert isinstance(stage.sink.error, RefusedByServer)
    assert len(run.record.attempts) == 2


@pytest.mark.parametrize("body", [LLAMA_CONTEXT, VLLM_CONTEXT], ids=["llama.cpp", "vllm"])
def test_a_context_that_is_too_short_is_still_told(body: bytes) -> None:
    stage = Stage()
    run = stage.dispatch()
    stage.turn(run).answer(body, status=400)
    stage.turn(run).answer(body, status=400)
    assert isinstance(stage.sink.error, ContextTooLong)
    assert stage.sink.error.message.startswith("This model's maximum context length is 8192 tokens.")
    assert (stage.sink.error.code, stage.sink.error.status) == ("context_length_exceeded", 400)
    assert "9000" not in stage.sink.error.message


LM_STUDIO_EVENT = (
    b'event: error\ndata: {"error":{"message":"Trying to keep the first 9000 tokens when context the overflows. '
    b'However, the model is loaded with context length of only 8192 tokens, which is not enough."}}\n\n'
)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_overflow_that_is_told_inside_a_stream_is_told_as_any_other(*, stream: bool) -> None:
    stage = Stage()
    run = stage.dispatch(stream=stream)
    stage.turn(run).begin(LM_STUDIO_EVENT, content_type="text/event-stream")
    assert stage.sink.calls == []
    stage.turn(run).answer(VLLM_CONTEXT, status=400)
    assert isinstance(stage.sink.error, ContextTooLong)
    assert outcomes(run) == [Outcome.DONE] * 2
    stage.assert_nothing_left()


def test_an_overflow_after_output_is_the_nodes_failure() -> None:
    stage = Stage(1)
    run = stage.dispatch()
    stage.turn(run).begin(text_event("a"), LM_STUDIO_EVENT)
    assert not isinstance(stage.sink.error, ContextTooLong)
    assert outcomes(run) == [Outcome.FAILED]


def test_a_context_that_no_node_reports_is_read_from_the_error() -> None:
    stage = Stage(2)
    for number in (1, 2):
        stage.table.set_specs(node_id(number), some_specs(a_model(context_length=None)))
    run = stage.dispatch()
    stage.turn(run).answer(LLAMA_CONTEXT, status=400)
    stage.turn(run).answer(LLAMA_CONTEXT, status=400)
    assert stage.sink.error is not None
    assert stage.sink.error.message.startswith("This model's maximum context length is 8192 tokens.")


def test_a_smaller_context_is_no_failure_of_its_node() -> None:
    stage = Stage(2)
    run = stage.dispatch()
    small = stage.turn(run)
    other = next(node for node in stage.nodes.values() if node is not small)
    stage.table.set_specs(other.id, some_specs(a_model(context_length=32_768)))
    small.answer(LLAMA_CONTEXT, status=400)
    stage.turn(run).answer(ANSWER)
    row = stage.table.get(small.id)
    assert row is not None
    assert (row.jobs_failed, row.suspect_until_s) == (0, 0.0)
    assert outcomes(run) == [Outcome.REFUSED, Outcome.DONE]


def test_a_server_that_lacks_a_feature_fails_only_if_it_does_so_again_and_again() -> None:
    stage = Stage(2)
    failed = []
    for _ in range(4):
        run = stage.again()
        while not stage.sink.over:
            lacking = stage.turn(run).id == node_id(1)
            stage.turn(run).answer(*([LACKS] if lacking else [ANSWER]), status=400 if lacking else 200)
        row = stage.table.get(node_id(1))
        assert row is not None
        failed.append(row.jobs_failed)
        stage.clock.advance(120)
    assert failed[0] == 0
    assert stage.sink.body == ANSWER
