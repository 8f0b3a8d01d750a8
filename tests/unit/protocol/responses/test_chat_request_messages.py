from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest
from sparewatt.protocol.responses.chat_request import to_messages
from sparewatt.protocol.responses.compaction import compacted_items, expanded_items
from sparewatt.protocol.responses.input_items import read_input
from tests.unit.protocol.responses.builders import chat_of, counting_ids, messages_of

USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL_REPLY = {"role": "tool", "tool_call_id": "call_1", "content": "found"}


def test_text_is_a_message_of_the_user() -> None:
    assert chat_of(input="Hi")["messages"] == [USER]


def test_leading_system_messages_become_one() -> None:
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rhyme."}]}
    system = {"role": "system", "content": "Be kind."}
    assert messages_of(system, developer, USER, instructions="Be brief.") == [
        {"role": "system", "content": "Be brief.\n\nBe kind.\n\nRhyme."},
        USER,
    ]


def test_later_system_messages_stay_in_place() -> None:
    said = messages_of(USER, {"role": "developer", "content": "Now rhyme."})
    assert said == [USER, {"role": "system", "content": "Now rhyme."}]


def test_a_call_and_its_result() -> None:
    assert messages_of(USER, CALL, RESULT) == [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
        TOOL_REPLY,
    ]


def test_calls_belong_to_the_message_before_them() -> None:
    second = CALL | {"call_id": "call_2"}
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]}
    assert messages_of(USER, said, CALL, second)[1:] == [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [TOOL_CALL, TOOL_CALL | {"id": "call_2"}]}
    ]


def test_reasoning_goes_with_the_message_after_it() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    assert messages_of(USER, thought, CALL)[1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Hm.",
        "tool_calls": [TOOL_CALL],
    }
    said = {"role": "assistant", "content": "Yes."}
    assert messages_of(USER, thought, said)[1] == said | {"reasoning_content": "Hm."}


def test_images_are_passed_on_and_text_stays_text() -> None:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
    ]
    assert messages_of({"role": "user", "content": parts})[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
    ]
    assert messages_of({"role": "user", "content": parts[:1]}) == [{"role": "user", "content": "What is it?"}]


def test_audio_and_files_are_passed_on() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    file = {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}
    assert messages_of({"role": "user", "content": [sound, file]})[0]["content"] == [
        sound,
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}},
    ]


def test_a_result_may_come_in_parts() -> None:
    parts = [{"type": "input_text", "text": "fou"}, {"type": "input_text", "text": "nd"}]
    assert messages_of(USER, CALL, RESULT | {"output": parts})[2] == TOOL_REPLY


def test_a_compaction_is_the_users_messages_and_a_summary() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
    other = {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, picture]}
    items = read_input([USER, CALL, RESULT, {"role": "assistant", "content": "Yes."}, other], new_id=counting_ids())
    short = compacted_items(items, "They looked.", new_id=counting_ids())
    said, summary = to_messages(short, instructions=None)
    assert [part.get("text", part["type"]) for part in said["content"]] == ["Hi", "\n\n", "Look:", "image_url"]
    assert summary == {"role": "assistant", "content": "They looked."}
    assert read_input(short, new_id=counting_ids())[0]["content"][0]["text"] == "Hi"
    assert [item["role"] for item in compacted_items([], "Nothing.", new_id=counting_ids())] == ["assistant"]


def test_a_compaction_is_replaced_by_its_contents() -> None:
    item = read_input([{"type": "compaction", "encrypted_content": "x"}, USER], new_id=counting_ids())
    assert expanded_items(item, lambda sealed: [{"type": "message", "sealed": sealed}]) == [
        {"type": "message", "sealed": "x"},
        item[1],
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "input[0]"),
        ({"type": "web_search_call"}, "input[0].type"),
        ({"content": "x"}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": ["x"]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "input[0].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_video"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"type": "function_call", "call_id": "c", "name": "n"}, "input[0].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({"type": "reasoning", "summary": "x"}, "input[0].summary"),
        ({"type": "reasoning", "summary": ["x"]}, "input[0]"),
        ({"type": "compaction"}, "input[0].encrypted_content"),
    ],
)
def test_an_unsupported_item_is_refused_with_its_path(item: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        messages_of(item)
    assert caught.value.param == param


def test_items_get_an_id_and_one_shape_and_keep_unknown_fields() -> None:
    phased = {"role": "assistant", "content": "Looking.", "phase": "commentary", "id": "msg_client"}
    kept = read_input([USER, phased], new_id=counting_ids())
    assert kept[0] == {
        "id": "msg_1",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    assert (kept[1]["id"], kept[1]["phase"]) == ("msg_client", "commentary")
    assert kept[1]["content"] == [{"type": "output_text", "text": "Looking.", "annotations": []}]
    assert read_input(kept, new_id=counting_ids()) == kept
    assert read_input(None, new_id=counting_ids()) == []
