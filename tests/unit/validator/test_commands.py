"""What an operator's commands read: a running validator, its signatures, and records from URLs and files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from sparewatt.core.clock import SystemClock
from sparewatt.core.errors import InvalidField, NotFound, StartupError
from sparewatt.core.rng import seeded
from sparewatt.evm.model import ChainIdentity
from sparewatt.market.match.record import AuctionRecord, write_record
from sparewatt.market.snapshots.model import SnapshotEntry
from sparewatt.protocol.api.validators import record_path
from sparewatt.protocol.contracts.match import CommitList, Down, Observations, ReputationSnapshot, RevealList, Vote
from sparewatt.protocol.contracts.match_messages import SignedCommitList, SignedRevealList, SignedVote
from sparewatt.protocol.contracts.outage_messages import SignedDown
from sparewatt.protocol.typed_message import struct_hash
from sparewatt.validator.commands import own_url, read_status, signed_entries
from sparewatt.validator.record_fetch import fetch_record
from sparewatt.validator.server import BoundedServer, ServerReply, ServerRequest
from sparewatt.validator.vote_key import open_vote_key
from tests.unit.market.match.match_scene import ORDER_ID, context_for
from tests.unit.validator.test_api import STATUS

ID = "0x" + ORDER_ID.hex()
RECORD = AuctionRecord(context=context_for(), validator="0x" + "11" * 20)
BODY = msgspec.json.encode(write_record(RECORD))
SIGNATURE = b"\1" * 65


async def answer(request: ServerRequest) -> ServerReply:
    replies = {
        "/v1/validator": ServerReply(msgspec.json.encode(STATUS)),
        "/other/v1/validator": ServerReply(b'{"hello":"world"}'),
        "/broken/v1/validator": ServerReply(b"", 500),
        record_path(ID, 0): ServerReply(BODY),
        record_path(ID, 1): ServerReply(b"no json"),
        record_path(ID, 2): ServerReply(b"{}"),
    }
    return replies.get(request.path, ServerReply(b"{}", 404))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = BoundedServer(answer, clock=SystemClock(), large_body_sender=lambda _: None)
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.close()


async def test_the_status_of_a_running_validator_is_read(url: str) -> None:
    assert await read_status(url) == STATUS


@pytest.mark.parametrize(
    ("path", "words"), [("/other", "no validator of this release"), ("/none", "no validator"), ("/broken", "HTTP 500")]
)
async def test_what_answers_otherwise_is_no_validator(url: str, path: str, words: str) -> None:
    with pytest.raises(StartupError, match=words):
        await read_status(url + path)


async def test_nobody_answers() -> None:
    with pytest.raises(StartupError, match="Is it running"):
        await read_status("http://127.0.0.1:1")


async def test_a_record_is_fetched_from_a_validator_or_read_from_a_file(url: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(BODY)
    for source in (url, url + "/", str(path)):
        assert (await fetch_record(source, ID, 0)).validator == RECORD.validator


async def test_a_record_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    for attempt in (1, 2):
        with pytest.raises(InvalidField):
            await fetch_record(url, ID, attempt)
    with pytest.raises(NotFound):
        await fetch_record(url, ID, 3)
    with pytest.raises(StartupError, match="Cannot read"):
        await fetch_record(str(tmp_path / "none.json"), ID, 0)


def test_the_url_of_the_validator_in_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="sparewatt validator run"):
        own_url(tmp_path)
    (tmp_path / "url").write_text("http://127.0.0.1:8700\n")
    assert own_url(tmp_path) == "http://127.0.0.1:8700"


def test_signatures_are_listed_newest_first_also_while_the_validator_runs(tmp_path: Path) -> None:
    identity = ChainIdentity(31337, b"\1" * 32)
    _, file = open_vote_key(tmp_path, identity=identity, task_manager="0x" + "22" * 20, rng=seeded(1))
    vote = Vote(ORDER_ID, 2, 3, b"\5" * 32)
    snapshot = ReputationSnapshot(4, 1, b"\6" * 32, 3, b"\7" * 32)
    file.append([SignedCommitList(CommitList(ORDER_ID, 2, (b"\1" * 32, b"\2" * 32)), SIGNATURE, ())], at=10)
    file.append([SignedRevealList(RevealList(ORDER_ID, 2, (b"\1" * 32,)), SIGNATURE, (), ())], at=11)
    file.append([SignedVote(vote, SIGNATURE)], at=12)
    file.append([SnapshotEntry(Observations(4, 9, ()), SIGNATURE), SnapshotEntry(snapshot, SIGNATURE)], at=13)
    entries = signed_entries(tmp_path, limit=10)
    assert [entry.kind for entry in entries] == ["snapshot", "observations", "vote", "reveal_list", "commit_list"]
    voted = entries[2]
    assert (voted.order_id, voted.attempt, voted.round, voted.signed_at) == (ID, 2, 3, 12)
    assert voted.hash == "0x" + struct_hash(vote).hex()
    assert (entries[0].epoch, entries[0].round, entries[4].items) == (4, 1, 2)
    assert [entry.kind for entry in signed_entries(tmp_path, limit=1)] == ["snapshot"]
    assert signed_entries(tmp_path / "none", limit=5) == []
    file.append([SignedDown(Down(ORDER_ID, 2, "0x" + "33" * 20, 1_000), SIGNATURE)], at=14)
    (down,) = signed_entries(tmp_path, limit=1)
    assert (down.kind, down.order_id, down.term, down.attempt) == ("down", ID, 2, None)
