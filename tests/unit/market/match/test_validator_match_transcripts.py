"""Whole matches from committed transcripts: the same messages at the same times make a validator sign the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.market.match.model import BidderStanding, MatchTiming
from sparewatt.market.match.record import read_record
from sparewatt.market.match.replay import replay
from sparewatt.market.match.validator_match import ValidatorMatch
from sparewatt.protocol.contracts.match import Task
from sparewatt.protocol.contracts.match_messages import decode_message, encode_message
from sparewatt.protocol.signing import SigningKey, keccak256
from sparewatt.protocol.typed_message import struct_hash
from tests.vectors import make_transcripts
from tests.vectors.encoding import from_json

TRANSCRIPTS: list[dict[str, Any]] = json.loads(make_transcripts.FILE.read_text())["transcripts"]
NAMES = [each["name"] for each in TRANSCRIPTS]
every_transcript = pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=NAMES)


def message_of(document: dict[str, Any]) -> Any:
    return decode_message(json.dumps(document).encode())


def test_the_file_is_up_to_date() -> None:
    assert make_transcripts.FILE.read_text() == make_transcripts.text(), "run: python -m tests.vectors.make_transcripts"


def test_the_kinds_of_matches_that_the_specification_asks_for_are_there() -> None:
    assert {"calm", "equivocating lists", "no bids", "all rejected"} <= set(NAMES)
    assert "lookup reorganised between vote and submit" in NAMES
    assert sum(name.startswith("leader stops at its ") for name in NAMES) == 3
    assert {each["round"] for each in TRANSCRIPTS} == {0, 1}


@every_transcript
def test_a_validator_signs_what_is_written(transcript: dict[str, Any]) -> None:
    messages = [message_of(each) for each in transcript["messages"]]
    match = ValidatorMatch(
        read_record(transcript["record"]).context,
        key=SigningKey(bytes.fromhex(transcript["vote_key"][2:])),
        timing=MatchTiming(),
        standing=lambda _: BidderStanding.GOOD,
        stored=tuple(message_of(each) for each in transcript["stored"]),
        recorded=None if transcript["recorded"] is None else read_record(transcript["recorded"]),
    )
    signed = [*match.start(transcript["started_ms"]).records]
    for at_ms, place in transcript["inputs"]:
        output = match.tick(at_ms) if place is None else match.receive(messages[place], now_ms=at_ms)
        signed += output.records
    assert [json.loads(encode_message(each)) for each in signed] == transcript["signs"]
    assert match.certificate is not None
    assert struct_hash(match.certificate.task) == bytes.fromhex(transcript["task_hash"][2:])
    assert match.certificate.round == transcript["round"]


@every_transcript
def test_a_replay_of_the_record_gives_the_same_task(transcript: dict[str, Any]) -> None:
    expected = from_json(Task, transcript["task"])
    again = replay(read_record(transcript["record"]))
    assert again.task == expected
    assert again.task_hash.hex() == transcript["task_hash"][2:]
    assert (again.round, again.differences) == (transcript["round"], ())
    assert keccak256(bytes.fromhex(transcript["task_bytes"][2:])) == again.task_hash
