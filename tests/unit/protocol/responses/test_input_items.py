from __future__ import annotations

from typing import Any

import pytest

from sparewatt.core.errors import BadRequest, InvalidField
from sparewatt.protocol.responses.input_items import read_input, reference_ids, refuse_stray_outputs, resolved_items
from sparewatt.protocol.responses.item_ids import item_ids, response_of
from tests.unit.protocol.responses.builders import USER, counting_ids, messages_of


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference"}, "input[0].id"),
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
    items = read_input([USER, phased], new_id=counting_ids())
    assert items[0] == {
        "id": "msg_1",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Hi"}],
    }
    assert (items[1]["id"], items[1]["phase"]) == ("msg_client", "commentary")
    assert items[1]["content"] == [{"type": "output_text", "text": "Looking.", "annotations": []}]
    assert read_input(items, new_id=counting_ids()) == items
    assert read_input(None, new_id=counting_ids()) == []


def test_a_reference_is_replaced_by_the_item_that_it_stands_for() -> None:
    kept = {"id": "msg_a_0", "type": "message", "role": "assistant", "content": []}
    for reference in ({"type": "item_reference", "id": "msg_a_0"}, {"id": "msg_a_0"}):
        items = read_input([reference, USER], new_id=counting_ids())
        assert reference_ids(items) == ["msg_a_0"]
        assert resolved_items(items, {"msg_a_0": kept}) == [kept, items[1]]


def test_an_output_without_its_call_is_refused() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    refuse_stray_outputs([call, output])
    refuse_stray_outputs([{"type": "compaction", "encrypted_content": "x"}, output])
    for items in ([output], [output, call], [call | {"call_id": "c2"}, output]):
        with pytest.raises(InvalidField, match="c1") as caught:
            refuse_stray_outputs(items)
        assert caught.value.param == "input"


def test_an_item_s_id_says_which_response_it_belongs_to() -> None:
    new_id = item_ids("resp_5k0w")
    assert [new_id("msg"), new_id("fc")] == ["msg_5k0w_0", "fc_5k0w_1"]
    assert response_of("msg_5k0w_0") == "resp_5k0w"
    for foreign in ("msg_5k0w", "msg_5K0W_0", "resp_5k0w", "msg__0", "", "msg_" + "a" * 61 + "_0"):
        assert response_of(foreign) is None
