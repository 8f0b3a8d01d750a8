from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import InvalidField, UnsupportedContent
from sparewatt.protocol.ollama.chat_request import RAW_TOKENS_UNASKED, is_completion
from sparewatt.protocol.ollama.request import OllamaGenerateRequest, parse_ollama
from tests.unit.protocol.ollama.ollama_requests import (
    PNG,
    TOOL,
    Json,
    chat_of,
    completion_of,
    embeddings_of,
    encoded,
    prompt_of,
)

CALL: Json = {"function": {"name": "look", "arguments": {"city": "Rome"}}}
OTHER: Json = {"function": {"name": "go", "arguments": {}}}


def test_a_chat_streams_with_its_counts_unless_told_otherwise() -> None:
    assert chat_of() == {
        "model": "llama",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert chat_of(stream=False) == {"model": "llama", "messages": [{"role": "user", "content": "Hi"}]}


def test_options_become_fields_of_a_chat() -> None:
    given = {"num_predict": 5, "temperature": 0.5, "top_k": 3, "seed": 1, "stop": ["x"], "num_ctx": 9}
    chat = chat_of(stream=False, options=given)
    assert chat["max_tokens"] == 5
    assert {name: chat[name] for name in ("temperature", "top_k", "seed", "stop")} == {
        name: given[name] for name in ("temperature", "top_k", "seed", "stop")
    }
    assert "num_ctx" not in chat
    assert "num_predict" not in chat


def test_a_repeat_penalty_has_the_names_of_both_kinds_of_server() -> None:
    chat = chat_of(options={"repeat_penalty": 1.1})
    assert (chat["repeat_penalty"], chat["repetition_penalty"]) == (1.1, 1.1)


@pytest.mark.parametrize("limit", [-1, -2, 0])
def test_no_limit_is_no_field(limit: int) -> None:
    assert "max_tokens" not in chat_of(options={"num_predict": limit})


def test_the_clients_own_tag_is_left_out() -> None:
    assert chat_of(model="llama:latest")["model"] == "llama"


@pytest.mark.parametrize(
    ("think", "fields"),
    [
        (True, {"chat_template_kwargs": {"enable_thinking": True}}),
        (False, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("low", {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "low"}),
        ("max", {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "high"}),
        (None, {}),
    ],
)
def test_thinking_sets_the_templates_switch_and_the_effort(think: object, fields: Json) -> None:
    chat = chat_of(think=think)
    found = {name: chat[name] for name in ("chat_template_kwargs", "reasoning_effort") if name in chat}
    assert found == fields


def test_an_unknown_level_of_thinking_is_refused() -> None:
    with pytest.raises(InvalidField) as refused:
        chat_of(think="hard")
    assert refused.value.param == "think"


def test_a_format_holds_the_answer() -> None:
    assert chat_of(format="json")["response_format"] == {"type": "json_object"}
    schema = {"type": "object"}
    held = chat_of(format=schema)["response_format"]["json_schema"]
    assert held == {"name": "answer", "schema": schema, "strict": True}
    assert "response_format" not in chat_of(format="")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidField) as refused:
        chat_of(format="xml")
    assert refused.value.param == "format"


def test_tools_are_those_of_a_chat() -> None:
    assert chat_of(tools=[TOOL])["tools"] == [TOOL]
    assert "tools" not in chat_of(tools=[])


def test_results_belong_to_the_calls_of_their_tool() -> None:
    messages = chat_of(
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "", "tool_calls": [CALL, OTHER, CALL]},
        {"role": "tool", "tool_name": "go", "content": "went"},
        {"role": "tool", "tool_name": "look", "content": "saw"},
        {"role": "tool", "content": "saw again"},
    )["messages"]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert [message["tool_call_id"] for message in messages[2:]] == [ids[1], ids[0], ids[2]]
    assert messages[1]["content"] is None
    assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}


def test_ids_that_a_client_sends_are_kept() -> None:
    messages = chat_of(
        {"role": "assistant", "tool_calls": [CALL | {"id": "a"}, CALL | {"id": "b"}]},
        {"role": "tool", "tool_call_id": "b", "content": "saw"},
        {"role": "tool", "tool_call_id": "unknown", "content": "?"},
    )["messages"]
    assert [message["tool_call_id"] for message in messages[1:]] == ["b", "unknown"]


def test_a_result_without_a_call_still_has_an_id() -> None:
    assert chat_of({"role": "tool", "content": "?"})["messages"][0]["tool_call_id"] == "call_0"


def test_thinking_goes_back_as_reasoning() -> None:
    message = chat_of({"role": "assistant", "content": "Yes.", "thinking": "Hm."})["messages"][0]
    assert message["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    ("data", "url"),
    [
        (PNG, f"data:image/png;base64,{PNG}"),
        ("/9j/4AAQ", "data:image/jpeg;base64,/9j/4AAQ"),
        ("data:image/png;base64,QQ==", "data:image/png;base64,QQ=="),
    ],
)
def test_pictures_travel_as_data(data: str, url: str) -> None:
    content = chat_of({"role": "user", "content": "See", "images": [data]})["messages"][0]["content"]
    assert content == [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": url}}]


def test_what_is_no_picture_is_refused_by_its_path() -> None:
    with pytest.raises(UnsupportedContent) as refused:
        chat_of({"role": "user", "content": "See", "images": [PNG, "JVBERi0="]})
    assert refused.value.param == "messages.0.images.1"


# prompts


def test_a_prompt_is_a_chat_of_one_message() -> None:
    chat = prompt_of(prompt="Hi", system="Be brief.", stream=False)
    assert chat["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(("fields", "is_one"), [({"raw": True}, True), ({"suffix": "}"}, True), ({}, False)])
def test_a_prompt_goes_without_a_template_if_it_is_raw_or_has_a_suffix(fields: Json, is_one: bool) -> None:  # noqa: FBT001 (a case)
    assert is_completion(parse_ollama(encoded(prompt="x", **fields), OllamaGenerateRequest)[0]) is is_one


def test_a_raw_prompt_is_a_completion() -> None:
    fields = completion_of(prompt="def f(", suffix="}", raw=True, think=True, stream=False)
    assert fields == {"model": "llama", "prompt": "def f(", "suffix": "}", "max_tokens": RAW_TOKENS_UNASKED}
    assert completion_of(prompt="x", options={"num_predict": 3})["max_tokens"] == 3


def test_a_raw_prompt_has_no_pictures() -> None:
    with pytest.raises(UnsupportedContent):
        completion_of(prompt="x", raw=True, images=[PNG])


def test_texts_become_a_request_for_embeddings() -> None:
    made = embeddings_of(model="e:latest", input=["a", "b"], dimensions=4, provider={"sort": "price"}, truncate=True)
    assert made == {"model": "e", "input": ["a", "b"], "dimensions": 4, "provider": {"sort": "price"}}
