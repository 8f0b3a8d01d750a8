from __future__ import annotations

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.anthropic.chat_request import to_chat
from tests.unit.protocol.anthropic.anthropic_requests import SCHEMA, TOOL, Json, assistant, chat_of, parsed, use, user


def test_options_keep_their_names_but_for_stops() -> None:
    chat = chat_of(temperature=0.5, top_p=0.9, top_k=4, stop_sequences=["END"], provider={"sort": "price"})
    assert chat == {
        "model": "llama",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "stop": ["END"],
        "provider": {"sort": "price"},
    }


def test_a_stream_asks_for_its_counts() -> None:
    chat = chat_of(stream=True)
    assert (chat["stream"], chat["stream_options"]) == (True, {"include_usage": True})


def test_what_identifies_the_user_does_not_reach_a_node() -> None:
    made = to_chat(parsed(metadata={"user_id": "somebody"}, tools=[TOOL, {"type": "bash_20250124", "name": "bash"}]))
    assert "somebody" not in str(made.fields)
    assert made.ignored == ("metadata", "tools.bash_20250124")


@pytest.mark.parametrize(("kind", "is_on"), [("enabled", True), ("adaptive", True), ("disabled", False)])
def test_thinking_sets_the_templates_switch(kind: str, is_on: bool) -> None:  # noqa: FBT001 (a case)
    assert chat_of(thinking={"type": kind})["chat_template_kwargs"] == {"enable_thinking": is_on}


def test_the_switch_is_left_alone_if_the_client_says_nothing() -> None:
    assert "chat_template_kwargs" not in chat_of()


@pytest.mark.parametrize(("effort", "becomes"), [("low", "low"), ("high", "high"), ("max", "high")])
def test_an_effort_is_one_that_servers_know(effort: str, becomes: str) -> None:
    assert chat_of(output_config={"effort": effort})["reasoning_effort"] == becomes


@pytest.mark.parametrize("place", ["output_format", "output_config"])
def test_a_schema_holds_the_answer(place: str) -> None:
    wanted: Json = {"type": "json_schema", "schema": SCHEMA}
    chat = chat_of(**{place: wanted if place == "output_format" else {"format": wanted}})
    assert chat["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_config": {"effort": "some"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"output_format": {"type": "json_schema"}}, "output_format"),
    ],
)
def test_a_wrong_option_names_its_field(fields: Json, param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        chat_of(**fields)
    assert refused.value.param == param


def test_an_assistants_text_at_the_end_is_continued() -> None:
    chat = chat_of(messages=[user("Count."), assistant("One, ")])
    assert chat["messages"][-1] == {"role": "assistant", "content": "One, "}
    assert (chat["continue_final_message"], chat["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("last", [user("Hi"), assistant(use())])
def test_nothing_else_is_continued(last: Json) -> None:
    assert "continue_final_message" not in chat_of(messages=[user("Count."), last])
