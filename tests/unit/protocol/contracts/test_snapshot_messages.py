"""Messages about snapshots and heartbeats survive their JSON, and bad ones are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import Heartbeat, Observation, Observations, Profile, ReputationSnapshot
from sparewatt.protocol.contracts.match_messages import write_object
from sparewatt.protocol.contracts.snapshot_messages import (
    ProfileTable,
    SignedHeartbeat,
    SignedObservations,
    SignedSnapshot,
    SnapshotBook,
    SnapshotMessage,
    SnapshotProposal,
    SnapshotStatus,
    decode_heartbeat,
    decode_snapshot_message,
    encode_snapshot_message,
)

ALICE, BOB = "0x" + "a" * 40, "0x" + "b" * 40
SIGNATURE = bytes(range(65))
OBSERVATIONS = SignedObservations(
    Observations(3, 99, (Observation(ALICE, 1, 2, 255), Observation(BOB, 1_000_000, 0, 31))), SIGNATURE
)
VOTE = SignedSnapshot(ReputationSnapshot(3, 2, bytes([1] * 32), 2, bytes([2] * 32)), SIGNATURE)
PROFILE = Profile(ALICE, 3, 1, 2, 1, 4, 20, 24, 2, 1 << 255, 990_000, 500_000)
BEAT = SignedHeartbeat(Heartbeat(ALICE, BOB, bytes([7] * 32), 5, 6, (bytes([1] * 32), bytes([2] * 32))), SIGNATURE)
MESSAGES: list[SnapshotMessage] = [
    OBSERVATIONS,
    VOTE,
    SnapshotProposal(VOTE, 99, (OBSERVATIONS, OBSERVATIONS)),
    SnapshotStatus(3, 1, 1, (bytes([4] * 32),)),
    SnapshotBook(ProfileTable(3, 99, (PROFILE,)), (OBSERVATIONS,)),
    SnapshotBook(ProfileTable(1, 0, ()), ()),
]


def changed(message: SnapshotMessage, *path: Any, value: Any) -> bytes:
    document = json.loads(encode_snapshot_message(message))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.tag)
def test_a_message_is_the_same_after_its_json(message: SnapshotMessage) -> None:
    assert decode_snapshot_message(encode_snapshot_message(message)) == message


BEAT_JSON = json.dumps(write_object(BEAT)).encode()


def test_a_heartbeat_is_the_same_after_its_json() -> None:
    assert decode_heartbeat(BEAT_JSON) == BEAT
    assert set(json.loads(BEAT_JSON)) == {"heartbeat", "signature"}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b'"x"', b"{", b'{"type": "no"}', b"{}", b"\xff", b'{"type":[]}', b'{"type":"\xff"}']
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        decode_snapshot_message(body)
    with pytest.raises(InvalidField):
        decode_heartbeat(body)


@pytest.mark.parametrize(
    "body",
    [
        changed(VOTE, "signature", value="0x00"),
        changed(VOTE, "signature", value=None),
        changed(VOTE, "snapshot", "round", value=-1),
        changed(VOTE, "snapshot", "round", value=1 << 32),
        changed(VOTE, "snapshot", "count", value=0),
        changed(VOTE, "more", value=1),
        changed(VOTE, "snapshot", "root", value="0x" + "00" * 32),
        changed(OBSERVATIONS, "observations", "rows", 0, "uptimePpm", value=1_000_001),
        changed(OBSERVATIONS, "observations", "rows", 0, "zone", value=32),
        changed(OBSERVATIONS, "observations", "rows", 0, "provider", value=BOB),
        changed(MESSAGES[2], "height", value=True),
        changed(MESSAGES[2], "height", value="1"),
        changed(MESSAGES[2], "observations", value=[{}]),
        changed(MESSAGES[3], "observations", value=["0x00"]),
        changed(MESSAGES[4], "table", "rows", 0, "zone", value=32),
        changed(MESSAGES[4], "table", "rows", 0, "uptimePpm", value=1_000_001),
    ],
)
def test_a_message_out_of_form_or_range_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        decode_snapshot_message(body)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("seq", -1),
        ("seq", 1 << 64),
        ("challenge", "0x12"),
        ("provider", "alice"),
        ("held", ["0x" + "02" * 32, "0x" + "01" * 32]),
        ("held", ["0x" + f"{number:064x}" for number in range(65)]),
    ],
)
def test_a_heartbeat_out_of_range_is_refused(member: str, value: Any) -> None:
    document = json.loads(BEAT_JSON)
    document["heartbeat"][member] = value
    with pytest.raises(InvalidField):
        decode_heartbeat(json.dumps(document).encode())
