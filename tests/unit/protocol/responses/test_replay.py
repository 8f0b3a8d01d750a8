from __future__ import annotations

from sparewatt.protocol.responses.replay import page, replay
from tests.unit.protocol.responses.builders import (
    FINISH,
    a_translator,
    call_delta,
    chunk,
    events_of,
    kinds,
)


def test_a_finished_response_is_replayed_in_larger_deltas() -> None:
    translator = a_translator()
    pieces = [chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk(call_delta("{}", name="look", call_id="c"))]
    events_of(translator, *pieces, FINISH)
    events = replay(translator.response)
    assert [event["delta"] for event in events if "delta" in event] == ["Hello", "{}"]
    assert events[-1]["response"] == translator.response
    assert events[0]["response"]["output"] == []
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_replay_always_sends_the_last_event() -> None:
    translator = a_translator()
    events_of(translator, chunk({"content": "Hello"}), FINISH)
    assert kinds(replay(translator.response, after=3))[0] == "output_text.delta"
    assert kinds(replay(translator.response, after=10_000)) == ["completed"]


def test_input_is_listed_in_pages() -> None:
    items = [{"id": f"msg_{i}"} for i in range(5)]
    first = page(items, order="desc", limit=2, after=None)
    assert [item["id"] for item in first["data"]] == ["msg_4", "msg_3"]
    assert (first["first_id"], first["last_id"], first["has_more"]) == ("msg_4", "msg_3", True)
    last = page(items, order="desc", limit=3, after="msg_3")
    assert ([item["id"] for item in last["data"]], last["has_more"]) == (["msg_2", "msg_1", "msg_0"], False)
    assert page(items, order="asc", limit=1, after=None)["data"] == [{"id": "msg_0"}]
    assert page([], order="asc", limit=1, after=None)["first_id"] is None
