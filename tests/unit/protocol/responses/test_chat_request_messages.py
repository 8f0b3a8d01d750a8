from __future__ import annotations

from tests.unit.protocol.responses.builders import CALL, RESULT, USER, chat_of, messages_of

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
