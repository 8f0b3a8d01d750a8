"""What a validator signed is on disk before it is sent, once per slot, and nobody else signs with its key."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from sparewatt.core.errors import StartupError
from sparewatt.market.snapshots.model import SnapshotEntry
from sparewatt.protocol.contracts.match import CommitList, Down, Observations, ReputationSnapshot, RevealList, Vote
from sparewatt.protocol.contracts.match_messages import SignedCommitList, SignedRevealList, SignedVote
from sparewatt.protocol.contracts.outage_messages import SignedDown
from sparewatt.validator import signed_file
from sparewatt.validator.signed_file import (
    EPOCHS_KEPT,
    FileBinding,
    SignedFile,
    SignedFileFailed,
    SignedTwice,
    StoredRecord,
    read_binding,
    read_signatures,
    require_unused,
)

BINDING = FileBinding(31337, "0x" + "ab" * 32, "0x" + "11" * 20, "0x" + "22" * 20)
ORDER, OTHER = b"\1" * 32, b"\2" * 32
SIGNATURE = b"\7" * 65
BIDS = (b"\3" * 32, b"\4" * 32)


def vote(round_: int = 0, *, order: bytes = ORDER, attempt: int = 0, task: bytes = b"\5" * 32) -> SignedVote:
    return SignedVote(Vote(order, attempt, round_, task), SIGNATURE)


def commits(*bids: bytes, attempt: int = 0) -> SignedCommitList:
    return SignedCommitList(CommitList(ORDER, attempt, bids), SIGNATURE, ())


def reveals(*bids: bytes, attempt: int = 0) -> SignedRevealList:
    return SignedRevealList(RevealList(ORDER, attempt, bids), SIGNATURE, (), (commits(*bids),))


def snapshot(epoch: int, round_: int = 0, *, root: bytes = b"\6" * 32) -> SnapshotEntry:
    return SnapshotEntry(ReputationSnapshot(epoch, round_, root, 3, b"\7" * 32), SIGNATURE)


def observations(epoch: int, *, height: int = 77) -> SnapshotEntry:
    return SnapshotEntry(Observations(epoch, height, ()), SIGNATURE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "signed.wal"


def opened(path: Path, binding: FileBinding = BINDING) -> SignedFile:
    return SignedFile(path, binding=binding)


def add(file: SignedFile, *records: StoredRecord, at: int = 100) -> None:
    file.append(records, at=at)


def stored_in(path: Path) -> list[StoredRecord]:
    return [stored.record for stored in read_signatures(path)]


def test_every_kind_of_message_is_read_back(path: Path) -> None:
    signed: list[StoredRecord] = [
        commits(*BIDS, attempt=1),
        reveals(*BIDS, attempt=1),
        vote(attempt=1),
        snapshot(4),
        observations(4),
    ]
    file = opened(path)
    add(file, *signed)
    file.close()
    assert stored_in(path) == signed
    again = opened(path)
    assert again.of_match(ORDER, 1) == signed[:3]
    assert again.of_snapshots() == signed[3:]
    assert again.of_match(ORDER, 0) == again.of_match(OTHER, 1) == []


def test_an_entry_is_on_disk_before_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    add(file, vote())
    assert synced == [path.stat().st_size]
    assert stored_in(path) == [vote()]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (vote(), vote(task=b"\6" * 32)),
        (commits(*BIDS), commits(*BIDS[:1])),
        (reveals(), reveals(*BIDS)),
        (snapshot(3), snapshot(3, root=b"\x09" * 32)),
        (observations(3), observations(3, height=78)),
    ],
)
def test_a_second_message_for_a_slot_is_refused_also_after_a_restart(
    path: Path, first: StoredRecord, second: StoredRecord
) -> None:
    file = opened(path)
    add(file, first)
    with pytest.raises(SignedTwice):
        add(file, vote(9), second)
    file.close()
    again = opened(path)
    with pytest.raises(SignedTwice):
        add(again, second)
    assert stored_in(path) == [first], "nothing of a refused step is written"


def test_the_same_message_again_is_written_once(path: Path) -> None:
    file = opened(path)
    add(file, vote())
    size = path.stat().st_size
    add(file, vote())
    assert path.stat().st_size == size


def test_rounds_attempts_and_orders_are_slots_of_their_own(path: Path) -> None:
    file = opened(path)
    others = [vote(1, task=b"\6" * 32), vote(attempt=1, task=b"\6" * 32), vote(order=OTHER, task=b"\6" * 32)]
    add(file, vote(), *others, commits(), reveals())
    assert len(file) == 6


# who may open it


def test_a_second_process_does_not_open_it(path: Path) -> None:
    file = opened(path)
    with pytest.raises(StartupError, match="Another validator signs with the vote key"):
        opened(path)
    with pytest.raises(StartupError, match="slashed"):
        require_unused(path)
    file.close()
    require_unused(path)
    opened(path).close()


def test_the_file_that_replaces_it_is_locked_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_file, "COMPACT_BYTES", 1)
    file = opened(path)
    add(file, vote())
    before = path.stat().st_ino
    file.compact(older_than=0)
    assert path.stat().st_ino != before
    with pytest.raises(StartupError):
        opened(path)


def test_a_file_that_was_replaced_while_it_was_opened_is_refused(path: Path) -> None:
    """Its lock is free again, but it is no longer the file that counts."""

    def replaces(_fd: int) -> bool:
        other = path.with_suffix(".other")
        other.write_bytes(b"")
        other.replace(path)
        return True

    with pytest.raises(StartupError, match="locked"):
        SignedFile(path, binding=BINDING, locker=replaces)


@pytest.mark.parametrize(
    ("binding", "words"),
    [
        (FileBinding(1, BINDING.genesis_hash, BINDING.task_manager, BINDING.vote_key), "chain 31337"),
        (FileBinding(31337, "0x" + "cd" * 32, BINDING.task_manager, BINDING.vote_key), "0xabab"),
        (FileBinding(31337, BINDING.genesis_hash, "0x" + "33" * 20, BINDING.vote_key), "--data of its own"),
        (FileBinding(31337, BINDING.genesis_hash, BINDING.task_manager, "0x" + "33" * 20), "the vote key 0x2222"),
    ],
)
def test_a_file_of_another_chain_contract_or_key_is_refused(path: Path, binding: FileBinding, words: str) -> None:
    file = opened(path)
    add(file, vote())
    file.close()
    with pytest.raises(StartupError, match=words):
        opened(path, binding)
    assert stored_in(path) == [vote()]
    assert read_binding(path) == BINDING


# damage


def test_a_torn_last_entry_is_cut_off(path: Path) -> None:
    """Power failed during the write, so nothing of it was sent."""
    file = opened(path)
    add(file, vote())
    whole = path.stat().st_size
    add(file, vote(1))
    file.close()
    data = path.read_bytes()
    for end in (whole, whole + 1, whole + 40, len(data) - 2, len(data) - 1):
        path.write_bytes(data[:end])
        again = opened(path)
        assert again.of_match(ORDER, 0) == [vote()]
        add(again, vote(1, task=b"\x08" * 32))
        again.close()
        assert stored_in(path) == [vote(), vote(1, task=b"\x08" * 32)]


def test_a_torn_first_line_is_an_empty_file(path: Path) -> None:
    opened(path).close()
    header = path.read_bytes()
    for end in (0, 1, 8, 30, len(header) - 1):
        path.write_bytes(header[:end])
        opened(path).close()
        assert path.read_bytes() == header


def test_blocks_that_were_never_written_are_cut_off(path: Path) -> None:
    """Some file systems have the new length of a file before its bytes."""
    file = opened(path)
    add(file, vote())
    whole = path.read_bytes()
    add(file, vote(1))
    file.close()
    line = path.read_bytes()[len(whole) :]
    for torn in (bytes(len(line)), line[:50] + bytes(len(line) - 50), line[:50] + bytes(100) + line[150:]):
        path.write_bytes(whole + torn)
        opened(path).close()
        assert path.read_bytes() == whole


def test_a_last_entry_that_was_changed_refuses_to_start(path: Path) -> None:
    """All of it is there, so it may have been sent: whoever cuts it off could sign the opposite."""
    file = opened(path)
    add(file, vote())
    file.close()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StartupError, match="--new-vote-key"):
        opened(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("line", [0, 1])
def test_damage_before_the_last_entry_refuses_to_start(path: Path, line: int) -> None:
    file = opened(path)
    add(file, vote())
    add(file, vote(1))
    file.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))
    with pytest.raises(StartupError, match="--new-vote-key"):
        opened(path)


def test_an_entry_of_another_release_refuses_to_start(path: Path) -> None:
    file = opened(path)
    add(file, vote())
    file.close()
    header, _ = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + signed_file._line(signed_file._Entry(1, "blessing", msgspec.Raw(b"{}"))))
    with pytest.raises(StartupError, match="does not know"):
        opened(path)


def test_a_disk_that_fails_ends_all_signing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)

    def fails(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(SignedFileFailed, match="No space left"):
        add(file, vote())
    monkeypatch.undo()
    with pytest.raises(SignedFileFailed):
        add(file, vote(1))


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="Cannot open"):
        opened(tmp_path / "missing" / "signed.wal")


# compaction


def test_old_entries_are_dropped_once_the_file_has_grown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)
    add(file, vote(), at=100)
    add(file, vote(1), at=200)
    file.compact(older_than=150)
    assert len(file) == 2, "a small file is left alone"
    monkeypatch.setattr(signed_file, "COMPACT_BYTES", 1)
    file._compact_at = 0
    file.compact(older_than=150)
    assert file.of_match(ORDER, 0) == [vote(1)]
    add(file, vote(2), at=300)
    file.close()
    assert stored_in(path) == [vote(1), vote(2)]
    assert [each.at for each in read_signatures(path)] == [200, 300]
    assert list(path.parent.iterdir()) == [path]


def test_entries_of_the_newest_epochs_stay_whatever_their_age(path: Path) -> None:
    """An epoch may be open for a day; forgetting a vote for it would allow a second one."""
    file = opened(path)
    add(file, *(snapshot(epoch) for epoch in range(1, EPOCHS_KEPT + 3)), at=100)
    file._compact_at = 0
    file.compact(older_than=10_000)
    kept = [entry.message.epoch for entry in file.of_snapshots()]
    assert kept == list(range(3, EPOCHS_KEPT + 3))


def test_a_compaction_that_fails_leaves_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(path)
    add(file, vote(), at=100)
    file._compact_at = 0

    def fails(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    file.compact(older_than=10_000)
    monkeypatch.undo()
    add(file, vote(1))
    assert stored_in(path) == [vote(), vote(1)]
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_has_no_entries(path: Path) -> None:
    assert read_signatures(path) == []
    assert read_binding(path) is None


def down(since: int = 1_000, *, term: int = 1, provider: str = "0x" + "33" * 20) -> SignedDown:
    return SignedDown(Down(ORDER, term, provider, since), SIGNATURE)


def test_votes_on_outages_are_kept_apart_from_the_match_of_the_same_id(path: Path) -> None:
    file = opened(path)
    add(file, vote(attempt=1), down(), down(1_001), down(term=2))
    assert file.of_match(ORDER, 1) == [vote(attempt=1)]
    file.close()
    again = opened(path)
    assert again.of_outages() == [down(), down(1_001), down(term=2)]
    assert stored_in(path)[1:] == again.of_outages()


def test_two_providers_are_never_signed_down_for_one_term_and_second(path: Path) -> None:
    file = opened(path)
    add(file, down())
    add(file, down())
    with pytest.raises(SignedTwice):
        add(file, down(provider="0x" + "44" * 20))
    assert len(file) == 1
