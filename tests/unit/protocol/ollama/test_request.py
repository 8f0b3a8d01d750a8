from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField, InvalidJson, UnsupportedParameter
from sparewatt.protocol.ollama.request import (
    REFUSED_FIELDS,
    STOPS_MAX,
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaPromptRequest,
    model_name,
    parse_ollama,
)
from tests.unit.protocol.ollama.ollama_requests import Json, encoded, parsed_chat


def test_options_of_an_answer_are_read() -> None:
    options = parsed_chat(options={"num_predict": 5, "temperature": 0.5, "stop": ["x"], "seed": 7}).options
    assert (options.num_predict, options.temperature, options.stop, options.seed) == (5, 0.5, ["x"], 7)


def test_options_of_a_server_have_no_effect_and_are_named() -> None:
    parsed = parsed_chat(options={"num_ctx": 4096, "num_gpu": 1, "top_k": 3}, keep_alive="5m", truncate=True)
    assert parsed.ignored == ("keep_alive", "truncate", "options.num_ctx", "options.num_gpu")
    assert parsed.options.top_k == 3


@pytest.mark.parametrize("options", [None, {}])
def test_no_options_are_fine(options: Json | None) -> None:
    assert parsed_chat(options=options, keep_alive=None).ignored == ()


@pytest.mark.parametrize("name", REFUSED_FIELDS)
def test_a_field_that_changes_the_question_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as refused:
        parse_ollama(encoded(prompt="x", **{name: "something"}), OllamaGenerateRequest)
    assert refused.value.param == name
    empty: tuple[object, ...] = (None, "", [])
    for value in empty:
        parse_ollama(encoded(prompt="x", **{name: value}), OllamaGenerateRequest)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"num_predict": -3}}, "options.num_predict"),
        ({"options": {"stop": ["x"] * (STOPS_MAX + 1)}}, "options.stop"),
        ({"options": 5}, "options"),
        ({"messages": [{"role": "chief", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "function"),
        ({"stream": "yes"}, "stream"),
        ({"model": ""}, "model"),
    ],
)
def test_a_wrong_value_names_its_field(fields: Json, param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parsed_chat(**fields)
    assert refused.value.param == param


def test_bytes_that_are_no_json_are_refused() -> None:
    with pytest.raises(InvalidJson):
        parse_ollama(b"{", OllamaChatRequest)


@pytest.mark.parametrize(("stream", "is_streamed"), [(None, True), (True, True), (False, False)])
def test_an_answer_is_streamed_unless_the_client_says_no(stream: bool | None, is_streamed: bool) -> None:  # noqa: FBT001 (a case)
    assert parse_ollama(encoded(stream=stream), OllamaChatRequest)[0].is_streamed is is_streamed


def test_the_older_form_of_embeddings_has_a_prompt() -> None:
    assert parse_ollama(encoded(prompt="x"), OllamaPromptRequest)[0].prompt == "x"


@pytest.mark.parametrize(
    ("asked", "name"), [("llama:latest", "llama"), ("llama:8b", "llama:8b"), (":latest", ":latest")]
)
def test_the_tag_that_clients_add_is_left_out(asked: str, name: str) -> None:
    assert model_name(asked) == name
