from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from sparewatt.core.errors import InvalidField, InvalidJson, ModelNotFound
from sparewatt.protocol.openai.chat import (
    MESSAGES_MAX,
    as_stream,
    error_body,
    for_node,
    models_of,
    parse_chat,
    read_chunk,
    read_completion,
    read_error_message,
    with_model,
    with_reply_model,
)

CHAT: dict[str, Any] = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}


def body_of(**changes: Any) -> bytes:
    return json.dumps(CHAT | changes).encode()


def without(field: str) -> bytes:
    return json.dumps({name: value for name, value in CHAT.items() if name != field}).encode()


# requests


def test_the_fields_that_routing_needs_are_read() -> None:
    chat = parse_chat(body_of(stream=True, stream_options={"include_usage": True}, max_tokens=5, n=2, seed=7))
    assert (chat.model, len(chat.messages), chat.stream, chat.n) == ("llama", 1, True, 2)
    assert chat.wants_usage
    assert chat.output_limit == 5


def test_the_newer_name_of_the_output_limit_wins() -> None:
    assert parse_chat(body_of(max_tokens=5, max_completion_tokens=6)).output_limit == 6
    assert parse_chat(body_of()).output_limit is None


@pytest.mark.parametrize("options", [None, {}, {"include_usage": None}, {"include_usage": False}, {"other": 1}])
def test_usage_is_sent_only_on_request(options: object) -> None:
    assert not parse_chat(body_of(stream_options=options)).wants_usage


def test_fields_that_are_null_are_as_good_as_absent() -> None:
    chat = parse_chat(body_of(stream=None, stream_options=None, max_tokens=None, max_completion_tokens=None, n=None))
    assert chat == parse_chat(body_of())


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (without("model"), "model"),
        (without("messages"), "messages"),
        (body_of(model=None), "model"),
        (body_of(model=""), "model"),
        (body_of(model="m" * 257), "model"),
        (body_of(model=5), "model"),
        (body_of(messages=[]), "messages"),
        (body_of(messages=[{}] * (MESSAGES_MAX + 1)), "messages"),
        (body_of(messages="hi"), "messages"),
        (body_of(messages=None), "messages"),
        (body_of(stream="yes"), "stream"),
        (body_of(stream_options=[]), "stream_options"),
        (body_of(stream_options={"include_usage": "yes"}), "stream_options.include_usage"),
        (body_of(max_tokens=-1), "max_tokens"),
        (body_of(max_tokens=1 << 25), "max_tokens"),
        (body_of(max_tokens="many"), "max_tokens"),
        (body_of(max_tokens=1.5), "max_tokens"),
        (body_of(max_completion_tokens=-1), "max_completion_tokens"),
        (body_of(n=0), "n"),
        (body_of(n=129), "n"),
    ],
)
def test_a_wrong_field_is_named(body: bytes, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_chat(body)
    assert caught.value.param == field
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"5", b"null"])
def test_a_body_that_is_no_object_has_no_field_to_name(body: bytes) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_chat(body)
    assert caught.value.param is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"model=llama",
        body_of()[:-1],
        body_of() + b"x",
        body_of().replace(b'"hi"', b'"h\xffi"'),
        body_of().replace(b'"llama"', b'"\xff"'),
        body_of().replace(b'"hi"', b"NaN"),
        b"\xff\xfe" + body_of(),
        "{}".encode("utf-16"),
    ],
)
def test_a_body_that_is_no_json_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_chat(body)


@pytest.mark.parametrize("value", [b"[" * 100_000, b'{"a":' * 40_000, b"[" * 100_000 + b"]" * 100_000])
def test_a_body_nested_too_deeply_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_chat(body_of().replace(b'"hi"', value))


def test_a_message_may_hold_anything_that_is_json() -> None:
    parts = [{"type": "text", "text": "é ☕ \u0000"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    assert len(parse_chat(body_of(messages=[{"role": "user", "content": parts}, {}])).messages) == 2


# what is changed on the way

RICH = body_of(
    stream=True,
    temperature=0.1,
    seed=2**63,
    stop=["\n", "é"],
    tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    metadata={"a": None, "": {"b": [1.0, 1e-7, -0.0]}},
)


@pytest.mark.parametrize(
    "options",
    [None, {}, {"include_usage": False}, {"include_usage": None, "continuous_usage_stats": False}, {"x": {"y": [1]}}],
)
def test_forcing_usage_changes_nothing_else(options: dict[str, Any] | None) -> None:
    before = json.loads(RICH) | {"stream_options": options}
    after = json.loads(for_node(json.dumps(before).encode(), stream=True))
    assert after == before | {"stream_options": (options or {}) | {"include_usage": True}}


def test_forcing_usage_adds_the_field_where_it_is_absent() -> None:
    after = json.loads(for_node(RICH, stream=True))
    assert after == json.loads(RICH) | {"stream_options": {"include_usage": True}}


def test_values_that_are_not_decoded_keep_their_bytes() -> None:
    body = (
        body_of()
        .replace(b'"hi"', b'"h\\u0069 \\/ 1.0"')
        .replace(b"{", b'{"big":1e400,"precise":0.10000000000000000001,', 1)
    )
    forced = for_node(body, stream=True)
    assert all(kept in forced for kept in (b'"h\\u0069 \\/ 1.0"', b"1e400", b"0.10000000000000000001"))


def test_a_whole_request_becomes_a_stream_with_usage() -> None:
    after = json.loads(as_stream(body_of(stream=False, seed=1)))
    assert after == CHAT | {"stream": True, "seed": 1, "stream_options": {"include_usage": True}}


# replies


def chunk_of(**choice: Any) -> bytes:
    shape = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0} | choice]}
    return json.dumps(shape).encode()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(chunk_of(delta={"content": "hi"}, finish_reason=None), id="openai"),
        pytest.param(
            b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"hi"}}],"created":1,"timings":{"x":1.5}}',
            id="llama.cpp",
        ),
        pytest.param(chunk_of(delta={"content": " "}, logprobs=None, token_ids=None), id="vllm"),
        pytest.param(chunk_of(delta={"role": "assistant", "content": "hi"}), id="role-and-text"),
        pytest.param(chunk_of(delta={"content": None, "reasoning_content": "hm"}), id="deepseek-reasoning"),
        pytest.param(chunk_of(delta={"content": "", "reasoning": "hm"}), id="ollama-reasoning"),
        pytest.param(chunk_of(delta={"content": None, "tool_calls": [{"index": 0}]}), id="tool-calls"),
        pytest.param(chunk_of(delta={"function_call": {"name": "f"}}), id="function-call"),
        pytest.param(chunk_of(delta={"refusal": "no"}), id="refusal"),
        pytest.param(chunk_of(delta={"audio": {"data": "AA=="}}), id="audio"),
    ],
)
def test_a_chunk_with_content_carries_output(data: bytes) -> None:
    chunk = read_chunk(data)
    assert chunk is not None
    assert chunk.carries_output()
    assert not chunk.is_error()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(chunk_of(delta={"role": "assistant", "content": None}), id="llama.cpp-role"),
        pytest.param(chunk_of(delta={"role": "assistant", "content": "", "refusal": None}), id="openai-role"),
        pytest.param(chunk_of(delta={"role": "assistant", "content": "", "tool_calls": []}), id="vllm-role"),
        pytest.param(chunk_of(delta={}, finish_reason="stop"), id="finish"),
        pytest.param(chunk_of(delta=None), id="null-delta"),
        pytest.param(b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}', id="usage"),
        pytest.param(b'{"choices":null}', id="null-choices"),
        pytest.param(b"{}", id="nothing"),
    ],
)
def test_a_chunk_without_content_carries_no_output(data: bytes) -> None:
    chunk = read_chunk(data)
    assert chunk is not None
    assert not chunk.carries_output()


@pytest.mark.parametrize(
    ("reason", "finishes"), [("stop", True), ("length", True), ("tool_calls", True), (None, False)]
)
def test_a_finish_reason_finishes(reason: str | None, *, finishes: bool) -> None:
    chunk = read_chunk(chunk_of(delta={}, finish_reason=reason))
    assert chunk is not None
    assert chunk.finishes() is finishes


def test_usage_is_read_from_a_chunk() -> None:
    data = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":null}}'
    chunk = read_chunk(data)
    assert chunk is not None
    assert chunk.usage is not None
    assert (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) == (3, 4)
    assert (none := read_chunk(chunk_of(delta={}))) is not None
    assert none.usage is None


@pytest.mark.parametrize("count", [-1, 1 << 25, 10**400, 0.5, "many"])
def test_an_impossible_token_count_is_no_chunk(count: object) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": count}
    assert read_chunk(json.dumps({"choices": [], "usage": usage}).encode()) is None
    assert read_completion(json.dumps({"choices": [], "usage": usage}).encode()) is None


@pytest.mark.parametrize("error", [{"message": "x"}, "x", {}, 5])
def test_an_error_event_is_an_error(error: object) -> None:
    chunk = read_chunk(json.dumps({"error": error}).encode())
    assert chunk is not None
    assert chunk.is_error()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"5", b"null", b'{"choices":5}', b'{"choices":[5]}', b'{"usage":[]}', b"[" * 100_000]
)
def test_an_unreadable_chunk_is_none(data: bytes) -> None:
    assert read_chunk(data) is None


def test_a_whole_reply_has_choices() -> None:
    completion = read_completion(b'{"choices":[{"message":{}}],"usage":{"completion_tokens":2}}')
    assert completion is not None
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 2


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error":{}}', b'{"choices":null}', b"<html>", b"\xff", b"[" * 100_000])
def test_an_unreadable_reply_is_none(body: bytes) -> None:
    assert read_completion(body) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b'{"error":{"message":"no","type":"x","code":400}}', "no", id="openai"),
        pytest.param(b'{"error":"no"}', "no", id="ollama"),
        pytest.param(b'{"object":"error","message":"no","code":400}', "no", id="vllm"),
        pytest.param(b'{"detail":"no"}', "no", id="fastapi"),
        pytest.param(b'{"error":{"detail":"no"}}', "no", id="nested-detail"),
        pytest.param(b'{"message":"no"}', "no", id="bare"),
        pytest.param(b'{"detail":[{"msg":"no"}]}', None, id="fastapi-list"),
        pytest.param(b'{"error":null}', None, id="null"),
        pytest.param(b'{"error":{"message":5}}', None, id="number"),
        pytest.param(b"<html>502</html>", None, id="html"),
        pytest.param(b"", None, id="empty"),
        pytest.param(b"\xff", None, id="bytes"),
        pytest.param(b"[" * 100_000, None, id="deep"),
    ],
)
def test_a_servers_message_is_found_in_every_shape_seen(body: bytes, message: str | None) -> None:
    assert read_error_message(body) == message


def test_a_servers_message_is_cut() -> None:
    assert read_error_message(json.dumps({"error": "x" * 5000}).encode()) == "x" * 500


def test_an_error_has_all_four_keys_of_openais() -> None:
    body = error_body(ModelNotFound("x", nearest=["y"]), hint="h")
    assert set(body["error"]) == {"message", "type", "param", "code", "hint"}
    assert body["error"]["param"] == "model"


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_is_called_empty(body: bytes) -> None:
    with pytest.raises(InvalidJson, match="The body is empty"):
        parse_chat(body)


# names of models


def test_models_are_tried_in_the_order_in_which_they_are_named() -> None:
    assert models_of("a", UNSET) == ("a",)
    assert models_of("a", ["b", "a", "c", "b"]) == ("a", "b", "c")
    assert models_of(UNSET, ["b", "c"]) == ("b", "c")
    nothing: list[list[str] | UnsetType | None] = [UNSET, None, []]
    for models in nothing:
        with pytest.raises(InvalidField, match="'model' is required"):
            models_of(UNSET, models)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"a","messages":[]}', id="first"),
        pytest.param(b'{"messages":[],"model" :\n "a" }', id="last, with space"),
        pytest.param(b'{"messages":[{"role":"model","content":"\\"model\\":\\"a\\""}],"model":"a"}', id="in a text"),
        pytest.param(b'{"metadata":{"model":"a"},"model":"a"}', id="nested before it"),
        pytest.param(b'{"x":{"model":"a"},"mod\\u0065l":"a"}', id="an escaped name"),
        pytest.param(b'{"model":"\\u0061"}', id="an escaped value"),
        pytest.param(b'{"messages":[]}', id="none"),
    ],
)
def test_one_field_is_renamed_and_nothing_else(body: bytes) -> None:
    renamed = with_model(body, 'org/"b"')
    assert json.loads(renamed) == json.loads(body) | {"model": 'org/"b"'}


def test_a_body_is_copied_but_for_the_name() -> None:
    body = b'{ "messages" : [ ], "model": "a", "temperature":0.10 }'
    assert with_model(body, "bc") == body.replace(b'"a"', b'"bc"')


def test_a_reply_without_a_name_stays_as_it_is() -> None:
    assert with_reply_model(b'data: {"choices":[]}\n\n', b'"m"') == b'data: {"choices":[]}\n\n'
    assert with_reply_model(b'{"model":"x","a":{"model":"y"}}', b'"m"') == b'{"model":"m","a":{"model":"y"}}'
