from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import JobFailed, NoCapacity
from sparewatt.protocol.ollama.reply import OllamaEmbedReply, OllamaReply, ReplyKind, rfc3339
from sparewatt.testing.clocks import ManualClock
from tests.unit.inference.scripted import COMPLETION, DONE, FINISH, ROLE, USAGE, text_event
from tests.unit.protocol.ollama.ollama_requests import Json
from tests.unit.protocol.responses.builders import call_delta

STREAM = ROLE + text_event("Hel") + text_event("lo") + FINISH + USAGE + DONE


def sse(*deltas: Json, finish: str = "stop") -> bytes:
    choices = [{"index": 0, "delta": delta} for delta in deltas] + [{"delta": {}, "finish_reason": finish}]
    return b"".join(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n" for choice in choices)


def a_reply(kind: ReplyKind = "chat", *, with_thinking: bool = True, clock: ManualClock | None = None) -> OllamaReply:
    return OllamaReply(kind, model="llama:latest", clock=clock or ManualClock(), with_thinking=with_thinking)


def lines(data: bytes) -> list[Json]:
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def streamed(reply: OllamaReply, data: bytes) -> list[Json]:
    return lines(reply.begin() + reply.feed(data) + reply.finish())


def test_each_piece_is_a_line_and_the_last_has_the_counts() -> None:
    *pieces, last = streamed(a_reply(), STREAM)
    assert [piece["message"]["content"] for piece in pieces] == ["Hel", "lo"]
    assert all(piece["model"] == "llama:latest" and piece["done"] is False for piece in pieces)
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    assert last["prompt_eval_count"] > 0
    assert last["eval_count"] > 0


def test_a_generation_has_its_text_in_another_place() -> None:
    *pieces, last = streamed(a_reply("generate"), STREAM)
    assert [piece["response"] for piece in pieces] == ["Hel", "lo"]
    assert (last["response"], "message" in last) == ("", False)


def test_durations_are_measured_here() -> None:
    clock = ManualClock()
    reply = a_reply(clock=clock)
    clock.advance(2.0)
    reply.feed(ROLE + text_event("Hel"))
    clock.advance(3.0)
    (last,) = lines(reply.finish())
    assert (last["prompt_eval_duration"], last["eval_duration"], last["total_duration"]) == (
        2_000_000_000,
        3_000_000_000,
        5_000_000_000,
    )


def test_a_whole_reply_is_one_object() -> None:
    answer = json.loads(a_reply().whole(COMPLETION))
    assert answer["message"]["role"] == "assistant"
    assert answer["message"]["content"]
    assert answer["done"] is True


def test_a_text_completion_is_read_too() -> None:
    body = json.dumps({"choices": [{"text": "once", "finish_reason": "length"}]}).encode()
    answer = json.loads(a_reply("generate").whole(body))
    assert (answer["response"], answer["done_reason"]) == ("once", "length")


def test_thinking_has_its_own_field() -> None:
    data = sse({"reasoning_content": "Hm."}, {"content": "Yes."})
    first, second, _ = streamed(a_reply(), data)
    assert (first["message"]["thinking"], second["message"]["content"]) == ("Hm.", "Yes.")
    assert "thinking" not in second["message"]
    assert [each["response"] for each in streamed(a_reply("generate", with_thinking=False), data)] == ["Yes.", ""]


def test_calls_come_whole_before_the_last_line() -> None:
    data = sse(call_delta('{"a"', name="look", call_id="1"), call_delta(": 1}"), finish="tool_calls")
    calls, last = streamed(a_reply(), data)
    assert calls["message"]["tool_calls"] == [{"function": {"index": 0, "name": "look", "arguments": {"a": 1}}}]
    assert (last["done_reason"], "tool_calls" in last["message"]) == ("stop", False)


def test_arguments_that_are_no_object_fail_the_answer() -> None:
    data = sse(call_delta("rm", name="look", call_id="1"), finish="tool_calls")
    assert "error" in streamed(a_reply(), data)[-1]
    whole = {"choices": [{"message": call_delta("rm", name="look", call_id="1"), "finish_reason": "tool_calls"}]}
    with pytest.raises(JobFailed):
        a_reply().whole(json.dumps(whole).encode())


def test_a_broken_stream_ends_in_an_error() -> None:
    found = streamed(a_reply(), ROLE + text_event("Hel") + b'data: {"error": {"message": "it broke"}}\n\n')
    assert found[-1] == {"error": "it broke"}
    assert lines(a_reply().fail(NoCapacity("Full."))) == [{"error": "Full."}]


def test_a_silent_stream_gets_a_line_without_text() -> None:
    (line,) = lines(a_reply().keep_alive)
    assert (line["message"]["content"], line["done"]) == ("", False)


def test_what_is_no_reply_is_a_failure() -> None:
    with pytest.raises(JobFailed):
        a_reply().whole(b"<html>")


def test_a_model_is_loaded_without_an_answer() -> None:
    loaded = json.loads(a_reply("generate").loaded())
    assert (loaded["done"], loaded["done_reason"], loaded["response"]) == (True, "load", "")


# embeddings

VECTORS = {
    "data": [{"embedding": [0.5, 1.0], "index": 0}, {"embedding": [2.0, 3.0], "index": 1}],
    "usage": {"prompt_tokens": 4},
}


def test_vectors_are_a_list_of_lists() -> None:
    answer = json.loads(OllamaEmbedReply(model="e", clock=ManualClock()).whole(json.dumps(VECTORS).encode()))
    assert (answer["embeddings"], answer["prompt_eval_count"], answer["model"]) == ([[0.5, 1.0], [2.0, 3.0]], 4, "e")


def test_the_older_form_has_one_vector() -> None:
    reply = OllamaEmbedReply(model="e", clock=ManualClock(), is_single=True)
    assert json.loads(reply.whole(json.dumps(VECTORS).encode())) == {"embedding": [0.5, 1.0]}


@pytest.mark.parametrize("body", [b"{}", b"<html>", b'{"data": [{"embedding": "QUJD"}]}'])
def test_a_reply_without_vectors_is_a_failure(body: bytes) -> None:
    with pytest.raises(JobFailed):
        OllamaEmbedReply(model="e", clock=ManualClock()).whole(body)


def test_times_are_written_as_rfc_3339() -> None:
    assert rfc3339(0.5) == "1970-01-01T00:00:00.500000Z"
