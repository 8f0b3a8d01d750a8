"""A node's server calls the model otherwise: it gets its own id, and the client reads the name that it used."""

from __future__ import annotations

import msgspec
import pytest

from sparewatt.core.limits import REQUEST_BODY_BYTES_MAX
from sparewatt.inference.dispatch.job_run import JobRun
from sparewatt.inference.dispatch.model import Outcome
from sparewatt.inference.matcher.formula import BALANCED
from tests.unit.inference.nodes import MODEL, a_dispatched_job, a_job, a_model, some_specs
from tests.unit.inference.scripted import BODY, DONE, ScriptedNode, Stage

SERVED = "llama3:8b-instruct-q4_K_M"
ASKED = "meta-llama/Meta-Llama-3-8B-Instruct"
RENAMED = some_specs(a_model(served_as=SERVED, quantization="Q4_K_M", capabilities=("chat", "continue_raw")))


def chunk(text: str, model: str = SERVED, *, finish: str | None = None) -> bytes:
    delta = {"content": text} if text else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": "c1", "model": model, "choices": [choice]}) + b"\n\n"


def whole(model: str) -> bytes:
    message = {"role": "assistant", "content": '{"model":"x"} and "model":"y"', "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return msgspec.json.encode({"id": "c1", "choices": [choice], "model": model, "usage": usage})


def dispatch(stage: Stage, *, stream: bool = True, asked: str = ASKED, body: bytes = b"") -> JobRun:
    body = body or BODY.replace(b"llama-3-8b", asked.encode())
    job = a_dispatched_job(body, match=a_job(model=MODEL), stream=stream, body_model=asked, reply_model=asked)
    return stage.dispatcher.dispatch(job, stage.sink, ranking=BALANCED)


def test_the_node_s_server_gets_its_own_id() -> None:
    stage = Stage(1, specs=RENAMED)
    node = stage.turn(dispatch(stage))
    assert node.opened[0].model == SERVED
    assert node.opened[0].body_bytes == len(node.body)
    assert msgspec.json.decode(node.body) == {**msgspec.json.decode(BODY), "model": SERVED}


def test_a_body_that_names_the_server_s_id_is_sent_as_it_is() -> None:
    """A client of before: it uses the id that the server itself reports."""
    stage = Stage(1, specs=RENAMED)
    body = b'{ "messages":[{"role":"user","content":"Hi"}], "model" : "' + SERVED.encode() + b'"}'
    node = stage.turn(dispatch(stage, asked=SERVED, body=body))
    assert (node.opened[0].model, node.body) == (SERVED, body)


def test_a_node_that_uses_the_network_s_name_gets_that() -> None:
    stage = Stage(1)
    node = stage.turn(dispatch(stage))
    assert node.opened[0].model == MODEL
    assert msgspec.json.decode(node.body)["model"] == MODEL


def test_a_second_node_gets_its_own_id_too() -> None:
    stage = Stage(2, specs=RENAMED)
    other = next(iter(stage.nodes))
    stage.table.set_specs(other, some_specs())
    run = dispatch(stage)
    bodies = {}
    for _ in range(2):
        node = stage.turn(run)
        bodies[node.id] = (node.opened[0].model, msgspec.json.decode(node.body)["model"])
        node.fail()
    assert bodies == {id_: (MODEL, MODEL) if id_ == other else (SERVED, SERVED) for id_ in stage.nodes}


def test_the_client_reads_the_name_that_it_asked_for_in_every_chunk() -> None:
    stage = Stage(1, specs=RENAMED)
    run = dispatch(stage)
    node = stage.turn(run)
    said = [
        chunk("a"),
        chunk("b"),
        chunk("c") + chunk("d"),
        chunk("e"),
        chunk('say "model":"x"'),
        chunk("", finish="stop"),
    ]
    node.answer(*said, DONE)
    assert stage.sink.body == b"".join(said).replace(SERVED.encode(), ASKED.encode()) + DONE
    assert stage.sink.went_straight
    assert run.record.outcome is Outcome.DONE
    stage.assert_nothing_left()


@pytest.mark.parametrize("asked", [ASKED, "l", "x" * 200])
def test_credit_is_for_what_the_node_sent_and_not_for_what_it_became(asked: str) -> None:
    stage = Stage(1, specs=RENAMED)
    run = dispatch(stage, asked=asked)
    node = stage.turn(run)
    node.begin(*(chunk(text) for text in "abcdefgh"))
    assert sum(map(len, stage.sink.pieces)) != node.sent_bytes
    straight = stage.sink.went_straight
    assert straight
    read_by_call = sum(map(len, stage.sink.pieces[:-straight]))
    run.consumed(read_by_call + straight * len(chunk("a")))  # the direct path counts what the node sent
    assert node.credit_bytes == node.sent_bytes


def test_a_whole_reply_has_the_name_that_was_asked_for() -> None:
    stage = Stage(1, specs=RENAMED)
    run = dispatch(stage, stream=False)
    stage.turn(run).answer(whole(SERVED))
    assert stage.sink.body == whole(ASKED)


def test_a_reply_under_the_right_name_is_passed_on_byte_for_byte() -> None:
    stage = Stage(1)
    run = dispatch(stage, stream=False, asked=MODEL)
    odd = whole("something else").replace(b":", b" : ", 1)
    stage.turn(run).answer(odd)
    assert stage.sink.body == odd


def test_the_reply_says_which_quantization_it_was_and_what_the_server_calls_it() -> None:
    stage = Stage(1, specs=RENAMED)
    stage.turn(dispatch(stage)).answer(chunk("a"), DONE)
    headers = stage.sink.headers
    assert headers["x-sparewatt-model"] == MODEL
    assert headers["x-sparewatt-quantization"] == "Q4_K_M"
    assert headers["x-sparewatt-served-as"] == SERVED


def test_an_id_that_does_not_fit_into_a_header_is_made_to() -> None:
    stage = Stage(1, specs=some_specs(a_model(served_as="mödel🦙")))
    stage.turn(dispatch(stage)).answer(chunk("a"), DONE)
    assert stage.sink.headers["x-sparewatt-served-as"] == "m_del_"


def test_a_path_on_the_node_s_machine_is_not_shown() -> None:
    stage = Stage(1, specs=some_specs(a_model(served_as="/home/ann/llama.gguf")))
    node = stage.turn(dispatch(stage))
    node.answer(chunk("a"), DONE)
    assert node.opened[0].model == "/home/ann/llama.gguf"
    assert stage.sink.headers["x-sparewatt-served-as"] == "llama.gguf"


def test_another_node_goes_on_under_the_same_name() -> None:
    stage = Stage(2, specs=RENAMED)
    run = dispatch(stage)
    first = stage.turn(run)
    first.begin(chunk("a"), chunk("b"))
    first.lost()
    second: ScriptedNode = stage.turn(run)
    assert second is not first
    second.answer(chunk("c"), chunk("", finish="stop"), DONE)
    events = [event.removeprefix(b"data: ") for event in stage.sink.body.split(b"\n\n")[:-2]]
    assert {msgspec.json.decode(event)["model"] for event in events} == {ASKED}
    assert second.opened[0].model == SERVED


def test_a_body_that_is_too_long_under_the_server_s_id_goes_to_no_node_and_breaks_no_link() -> None:
    stage = Stage(1, specs=RENAMED)
    body = b'{"model":"m","x":"' + b"y" * (REQUEST_BODY_BYTES_MAX - 20) + b'"}'
    assert len(body) <= REQUEST_BODY_BYTES_MAX
    run = dispatch(stage, asked="m", body=body)
    assert stage.sink.error is not None
    assert stage.sink.error.code == "no_capacity"
    assert [attempt.outcome for attempt in run.record.attempts] == [Outcome.REFUSED]
    assert next(iter(stage.nodes.values())).opened == []
    stage.assert_nothing_left()
