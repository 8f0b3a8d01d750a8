"""A match's record as JSON: it comes back as it was, and nothing malformed is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.market.match.record import AuctionRecord, read_record, write_record
from tests.unit.market.match.match_scene import MatchScene, bid_for, commit_for, decline_for, key_of


@pytest.fixture(scope="module")
def record() -> AuctionRecord:
    scene = MatchScene()
    scene.start()
    for number in range(2):
        scene.bid(bid_for(number))
    scene.say(decline_for(2), delay_ms=5)
    scene.say(commit_for(bid_for(0), key=key_of("a stranger")))
    scene.run()
    return scene.validators[0].record()


@pytest.fixture
def document(record: AuctionRecord) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(write_record(record)))
    return read


def test_a_record_comes_back_as_it_was(record: AuctionRecord, document: dict[str, Any]) -> None:
    again = read_record(document)
    assert again == record
    assert write_record(again) == write_record(record)


def test_everything_of_the_match_is_in_it(record: AuctionRecord) -> None:
    assert (len(record.commits), len(record.declines), len(record.reveals)) == (2, 1, 2)
    assert (len(record.commit_lists), len(record.reveal_lists), len(record.proposals)) == (4, 4, 1)
    assert len(record.votes) >= 3
    assert [note.code for note in record.notes if note.what == "commit"] == [34]


@pytest.mark.parametrize("name", ["context", "validator", "commits", "votes", "notes"])
def test_a_missing_or_unknown_member_is_refused(document: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidField):
        read_record({**document, "more": 1})
    del document[name]
    with pytest.raises(InvalidField):
        read_record(document)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("commits", {}),
        ("commits", [1]),
        ("commits", [{}]),
        ("votes", [{"vote": 1, "signature": "0x"}]),
        ("notes", [{"what": "x"}]),
        ("notes", [{"at_ms": -1, "code": 0, "late_by_ms": 0, "what": "", "subject": ""}]),
        ("notes", [{"at_ms": 1, "code": 0, "late_by_ms": 0, "what": "x" * 201, "subject": ""}]),
        ("validator", 5),
        ("context", None),
    ],
)
def test_a_malformed_member_is_refused(document: dict[str, Any], name: str, value: object) -> None:
    with pytest.raises(InvalidField):
        read_record({**document, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("order_id", "0x12"),
        ("order_id", "zz" * 32),
        ("attempt", "1"),
        ("attempt", True),
        ("weights", []),
        ("weights", {"0x": -1}),
        ("node_keys", {"0x": 1}),
        ("profiles", [{}]),
        ("terms", {}),
        ("domain", {"chain_id": 1}),
    ],
)
def test_a_malformed_context_is_refused(document: dict[str, Any], name: str, value: object) -> None:
    with pytest.raises(InvalidField):
        read_record({**document, "context": {**document["context"], name: value}})


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_what_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidField):
        read_record(document)
