"""Messages between providers and validators: each comes back as it was, and anything malformed is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import msgspec
import pytest

from sparewatt.core.errors import InvalidField
from sparewatt.protocol.contracts.match import BidCommit, BidLeaf, CommitList, RevealList, RoundReached, Vote
from sparewatt.protocol.contracts.match_messages import (
    ITEMS_MAX,
    MatchMessage,
    MatchStatus,
    MissingBids,
    Proposal,
    RevealedBid,
    SignedCommit,
    SignedCommitList,
    SignedDecline,
    SignedRevealList,
    SignedVote,
    decode_message,
    encode_message,
    list_digest,
    read_object,
    write_object,
)
from sparewatt.protocol.typed_message import struct_hash
from tests.unit.protocol.contracts.test_message_ranges import BID, DECLINE, ID, IDS, LEAF, SPEC, TASK, TERMS
from tests.vectors.make import provider

SIGNATURE = bytes(range(65))
HEX = "0x" + SIGNATURE.hex()
COMMIT = SignedCommit(BidCommit(ID, 0, provider(1), ID), SIGNATURE)
REVEALED = RevealedBid(BID, TERMS, SPEC)
COMMITS = SignedCommitList(CommitList(ID, 0, IDS[:2]), SIGNATURE, (COMMIT,))
REVEALS = SignedRevealList(RevealList(ID, 0, IDS[:1]), SIGNATURE, (REVEALED,), (COMMITS,))
VOTE = SignedVote(Vote(ID, 0, 3, ID), SIGNATURE)
STATUS = MatchStatus(RoundReached(ID, 0, 3), SIGNATURE, ID, IDS[:2], ())
LEAVES: tuple[BidLeaf, ...] = (LEAF,)
EACH: list[MatchMessage] = [
    COMMIT,
    SignedDecline(DECLINE, SIGNATURE),
    REVEALED,
    COMMITS,
    REVEALS,
    VOTE,
    Proposal(VOTE, TASK, LEAVES, (REVEALED,), (COMMIT,), (COMMITS,)),
    MissingBids(2, REVEALS),
    STATUS,
]


def document_of(message: MatchMessage) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(encode_message(message))
    return document


def refused(document: object) -> str:
    with pytest.raises(InvalidField) as caught:
        decode_message(msgspec.json.encode(document))
    return str(caught.value.param)


def test_every_message_is_tried_here() -> None:
    assert [type(message) for message in EACH] == list(get_args(MatchMessage))
    assert len({message.tag for message in EACH}) == len(EACH)


@pytest.mark.parametrize("message", EACH, ids=lambda message: message.tag)
def test_a_message_comes_back_as_it_was(message: MatchMessage) -> None:
    again = decode_message(encode_message(message))
    assert again == message
    assert encode_message(again) == encode_message(message)


@pytest.mark.parametrize("message", EACH, ids=lambda message: message.tag)
def test_each_member_is_needed_and_no_other_is_known(message: MatchMessage) -> None:
    document = document_of(message)
    for name in document:
        rest = {key: value for key, value in document.items() if key != name}
        assert refused(rest) in ("type", type(message).__name__)
    assert refused({**document, "more": 1}) == type(message).__name__


@pytest.mark.parametrize("message", EACH, ids=lambda message: message.tag)
@pytest.mark.parametrize("value", [None, 1.5, True, "0x", -1, {"a": 1}, [1], "x" * 132])
def test_a_member_of_another_form_is_refused(message: MatchMessage, value: object) -> None:
    document = document_of(message)
    for name in document:
        if name != "type":
            refused({**document, name: value})


@pytest.mark.parametrize(
    "signature",
    [HEX[:-2], HEX + "00", HEX[2:], HEX.upper(), "0x" + "AB" * 65, "0x" + "zz" * 65, 5, "0x" + "00" * 64 + "\n0"],
)
def test_a_signature_is_65_bytes_in_lower_case_hex(signature: object) -> None:
    assert refused({**document_of(COMMIT), "signature": signature}) == "signature"


@pytest.mark.parametrize("digest", ["0x" + "01" * 31, "0x" + "01" * 33, "01" * 32, 1, None])
def test_a_hash_is_32_bytes(digest: object) -> None:
    assert refused({**document_of(STATUS), "task_hash": digest}) == "task_hash"
    assert refused({**document_of(STATUS), "commit_lists": [digest]}) == "commit_lists"


def test_lists_are_bounded_at_every_depth() -> None:
    full = dataclasses.replace(STATUS, commit_lists=(ID,) * ITEMS_MAX)
    assert decode_message(encode_message(full)) == full
    long = {**document_of(STATUS), "commit_lists": ["0x" + ID.hex()] * (ITEMS_MAX + 1)}
    assert refused(long) == "commit_lists"
    commits = document_of(COMMITS)
    commits["commits"] *= ITEMS_MAX + 1
    assert refused(commits) == "commits"
    reveals = document_of(REVEALS)
    reveals["commit_lists"][0]["commits"] *= ITEMS_MAX + 1
    assert refused(reveals) == "commits"


def test_ranges_of_signed_structs_are_checked() -> None:
    commits = document_of(COMMITS)
    commits["list"]["bidIds"].reverse()
    assert refused(commits) == "bid_ids"
    reveal = document_of(REVEALED)
    reveal["bid"]["priceUusd"] = 0
    assert refused(reveal) == "price_uusd"
    decline = document_of(SignedDecline(DECLINE, SIGNATURE))
    decline["decline"]["code"] = 71
    assert refused(decline) == "code"
    status = document_of(STATUS)
    status["reached"]["round"] = 1 << 32
    assert refused(status) == "round"


def test_an_address_has_one_spelling() -> None:
    document = document_of(COMMIT)
    document["commit"]["provider"] = "0x" + "AB" * 20
    assert refused(document) == "provider"


@pytest.mark.parametrize("number", [-1, 1 << 64, "1", 1.0, True, None])
def test_a_round_is_a_whole_number(number: object) -> None:
    assert refused({**document_of(MissingBids(2, REVEALS)), "round": number}) == "round"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"1", b"null", b'"commit"', b"{}", b'{"type":1}'])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        decode_message(body)


def test_an_unknown_type_is_told_which_there_are() -> None:
    with pytest.raises(InvalidField, match="commit, decline, reveal"):
        decode_message(b'{"type":"bribe"}')


def test_a_type_that_is_no_text_is_refused() -> None:
    tags: list[object] = [["commit"], {}, None, 1]
    for tag in tags:
        assert refused({**document_of(COMMIT), "type": tag}) == "type"


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"type":"\xed\xa0\x80"}', b'{"type":"vote","a":' + b"9" * 5_000 + b"}"]
)
def test_json_that_breaks_a_reader_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidField):
        decode_message(body)


def test_an_object_is_read_as_its_own_class_only() -> None:
    assert read_object(SignedVote, write_object(VOTE)) == VOTE
    with pytest.raises(InvalidField):
        read_object(SignedCommit, write_object(VOTE))


def test_a_digest_names_list_and_signer() -> None:
    listed = CommitList(ID, 0, IDS[:2])
    digest = list_digest(listed, signer=provider(1))
    assert digest == list_digest(listed, signer=provider(1))
    assert digest != list_digest(listed, signer=provider(2))
    assert digest != list_digest(CommitList(ID, 0, IDS[:1]), signer=provider(1))
    assert digest != list_digest(RevealList(ID, 0, IDS[:2]), signer=provider(1))
    assert digest != struct_hash(listed)
