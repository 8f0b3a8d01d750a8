from __future__ import annotations

import json

import pytest

from sparewatt.core.errors import InvalidField, SparewattError, UnsupportedContent
from tests.unit.protocol.anthropic.anthropic_requests import (
    PICTURE,
    Json,
    assistant,
    messages_of,
    result,
    text,
    use,
    user,
)

DATA_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def test_a_string_stays_a_string() -> None:
    assert messages_of({"role": "user", "content": "Hi"}) == [{"role": "user", "content": "Hi"}]


def test_blocks_of_text_become_one_text_without_their_marks_for_a_cache() -> None:
    found = messages_of(user(text("One.", cache_control={"type": "ephemeral"}), "Two."))
    assert found == [{"role": "user", "content": "One.\n\nTwo."}]


@pytest.mark.parametrize("system", ["Be brief.", [text("Be brief.", cache_control={"type": "ephemeral"})]])
def test_the_system_prompt_comes_first(system: object) -> None:
    assert messages_of(user("Hi"), system=system)[0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_prompt_is_no_message(system: object) -> None:
    assert messages_of(user("Hi"), system=system) == [{"role": "user", "content": "Hi"}]


def test_a_system_message_may_stand_in_the_middle() -> None:
    found = messages_of(user("Hi"), {"role": "system", "content": "Now briefly."}, user("Go on"))
    assert [message["role"] for message in found] == ["user", "system", "user"]


def test_neighbouring_turns_of_one_role_become_one() -> None:
    assert messages_of(user("One"), user("Two")) == [{"role": "user", "content": "One\n\nTwo"}]


def test_pictures_travel_as_data() -> None:
    assert messages_of(user("See", PICTURE))[0]["content"] == [{"type": "text", "text": "See"}, DATA_URL]


def test_a_picture_by_its_address_stays_an_address() -> None:
    block: Json = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    assert messages_of(user(block))[0]["content"][0]["image_url"]["url"] == "https://example.org/a.png"


def test_a_call_and_its_result_keep_their_id() -> None:
    call, answer = messages_of(user("Go"), assistant("I look.", use(city="Rome")), user(result("Sun.")))[1:]
    (made,) = call["tool_calls"]
    assert (call["content"], made["id"], made["function"]["name"]) == ("I look.", "toolu_1", "look")
    assert json.loads(made["function"]["arguments"]) == {"city": "Rome"}
    assert answer == {"role": "tool", "tool_call_id": "toolu_1", "content": "Sun."}


def test_results_come_before_the_text_of_their_turn() -> None:
    found = messages_of(user("Go"), assistant(use()), user("And?", result("Sun.")))
    assert [(message["role"], message["content"]) for message in found[2:]] == [("tool", "Sun."), ("user", "And?")]


def test_a_failed_result_says_so() -> None:
    found = messages_of(user("Go"), assistant(use()), user(result("no such file", is_error=True)))
    assert found[-1]["content"] == "Error: no such file"


@pytest.mark.parametrize("content", [None, "", []])
def test_an_empty_result_is_an_empty_text(content: object) -> None:
    assert messages_of(user("Go"), assistant(use()), user(result(content)))[-1]["content"] == ""


def test_a_results_pictures_follow_in_a_users_message() -> None:
    found = messages_of(user("Go"), assistant(use()), user(result([text("Here:"), PICTURE])))
    assert found[-2] == {"role": "tool", "tool_call_id": "toolu_1", "content": "Here:"}
    assert found[-1] == {"role": "user", "content": [DATA_URL]}


def test_a_found_tool_is_named() -> None:
    found = messages_of(user("Go"), assistant(use()), user(result([{"type": "tool_reference", "tool_name": "Bash"}])))
    assert found[-1]["content"] == "Bash"


def test_thinking_goes_back_as_reasoning() -> None:
    thought: Json = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    message = messages_of(user("Go"), assistant(thought, "Yes."), user("Why?"))[1]
    assert message == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}


def test_encrypted_thinking_is_left_out() -> None:
    message = messages_of(user("Go"), assistant({"type": "redacted_thinking", "data": "x"}, "Yes."), user("Why?"))[1]
    assert message == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "Once."}, "Tale\nOnce."),
        ({"type": "content", "content": "Once."}, "Tale\nOnce."),
        ({"type": "content", "content": [text("Once.")]}, "Once."),
    ],
)
def test_a_document_of_text_is_text(source: Json, becomes: str) -> None:
    found = messages_of(user({"type": "document", "title": "Tale", "source": source}))
    assert found[0]["content"] == becomes


@pytest.mark.parametrize(
    ("turns", "error", "param"),
    [
        ([user({"type": "document", "source": {"type": "base64"}})], UnsupportedContent, "messages.0.content.0.source"),
        ([user({"type": "search_result"})], UnsupportedContent, "messages.0.content.0.type"),
        ([user({"text": "x"})], UnsupportedContent, "messages.0.content.0.type"),
        ([user("a", {"type": "image", "source": {"type": "file"}})], UnsupportedContent, "messages.0.content.1.source"),
        ([user({"type": "text"})], InvalidField, "messages.0.content.0.text"),
        ([user("a"), assistant({"type": "server_tool_use"})], UnsupportedContent, "messages.1.content.0.type"),
        ([assistant({"type": "tool_use", "id": "a", "name": "b"})], InvalidField, "messages.0.content.0.input"),
        ([assistant({"type": "tool_use", "name": "b", "input": {}})], InvalidField, "messages.0.content.0.id"),
        ([user({"type": "tool_result"})], InvalidField, "messages.0.content.0.tool_use_id"),
        ([user(result(5))], InvalidField, "messages.0.content.0.content"),
        ([user(result([{"type": "audio"}]))], UnsupportedContent, "messages.0.content.0.content.0"),
        ([user(result(["x"]))], UnsupportedContent, "messages.0.content.0.content.0"),
        ([user("a"), {"role": "system", "content": [PICTURE]}], UnsupportedContent, "messages.1.content.0.type"),
    ],
)
def test_what_no_node_can_read_is_refused_by_its_path(
    turns: list[Json], error: type[SparewattError], param: str
) -> None:
    with pytest.raises(error) as refused:
        messages_of(*turns)
    assert refused.value.param == param
