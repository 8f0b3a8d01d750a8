from __future__ import annotations

from sparewatt.protocol.responses.chat_request import to_messages
from sparewatt.protocol.responses.compaction import compacted_items, expanded_items
from sparewatt.protocol.responses.input_items import read_input
from tests.unit.protocol.responses.builders import CALL, RESULT, USER, counting_ids


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
