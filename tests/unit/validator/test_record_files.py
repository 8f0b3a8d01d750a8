"""Records and books on disk stay within bounds, and what may be demanded stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparewatt.validator import record_files
from sparewatt.validator.record_files import BookFiles, RecordFiles, recorded_attempts

ORDER, OTHER = "0x" + "1" * 64, "0x" + "2" * 64


def save(files: RecordFiles, order_id: str, attempt: int = 0, *, body: bytes = b"{}", until: int = 0) -> None:
    files.save(order_id, attempt, body, kept_until=until, now=1_000)


def test_a_record_is_read_back_also_after_a_restart(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path / "records")
    save(files, ORDER, 2, body=b"one")
    save(files, ORDER, 2, body=b"two")
    save(files, ORDER, 10)
    for each in (files, RecordFiles(tmp_path / "records")):
        assert each.read(ORDER, 2) == b"two"
        assert each.read(OTHER, 2) is None
        assert each.attempts_of(ORDER) == [2, 10]
        assert len(each) == 2


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert len(RecordFiles(tmp_path)) == 0
    assert (tmp_path / "notes.txt").exists()


def test_a_record_that_is_gone_from_the_disk_is_none(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path)
    save(files, ORDER)
    next(tmp_path.iterdir()).unlink()
    assert files.read(ORDER, 0) is None


def test_the_oldest_are_dropped_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "RECORDS_MAX", 3)
    files = RecordFiles(tmp_path)
    for attempt in range(5):
        save(files, ORDER, attempt)
    assert files.attempts_of(ORDER) == [2, 3, 4]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_record_whose_book_may_be_demanded_is_not_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the stake is lost for a book that cannot be shown, so the bound gives way."""
    monkeypatch.setattr(record_files, "RECORDS_MAX", 2)
    files = RecordFiles(tmp_path)
    for attempt in range(4):
        save(files, ORDER, attempt, until=2_000)
    save(files, OTHER)
    assert files.attempts_of(ORDER) == [0, 1, 2, 3]


def test_records_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "RECORDS_BYTES_MAX", 250)
    files = RecordFiles(tmp_path)
    for attempt in range(4):
        save(files, ORDER, attempt, body=bytes(100))
    assert files.attempts_of(ORDER) == [2, 3]
    save(files, ORDER, 3, body=bytes(10))
    save(files, ORDER, 4, body=bytes(100))
    assert files.attempts_of(ORDER) == [2, 3, 4]


def test_an_epoch_may_have_several_books_newest_first(tmp_path: Path) -> None:
    files = BookFiles(tmp_path)
    files.save(3, b"a")
    files.save(3, b"b")
    files.save(3, b"a")
    files.save(4, b"c")
    for each in (files, BookFiles(tmp_path)):
        assert sorted(each.read(3)) == [b"a", b"b"]
        assert each.read(4) == [b"c"]
        assert each.read(5) == []
        assert each.newest_epochs(1) == [4]
    assert files.read(3) == [b"b", b"a"]


def test_books_are_bounded_by_epoch_and_in_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "EPOCHS_MAX", 2)
    monkeypatch.setattr(record_files, "BOOKS_PER_EPOCH", 2)
    files = BookFiles(tmp_path)
    for epoch in (1, 2, 3):
        for number in range(4):
            files.save(epoch, b"%d-%d" % (epoch, number))
    assert files.newest_epochs(9) == [2, 3]
    assert files.read(3) == [b"3-3", b"3-2"]
    assert len(list(tmp_path.iterdir())) == 4
    (tmp_path / "junk.json").write_text("{}")
    assert BookFiles(tmp_path).newest_epochs(9) == [2, 3]


def test_attempts_are_found_by_the_names_of_files(tmp_path: Path) -> None:
    one, other = "0x" + "ab" * 32, "0x" + "cd" * 32
    for name in (f"{one}-0.json", f"{one}-12.json", f"{one}-x.json", f"{other}-3.json"):
        (tmp_path / name).write_bytes(b"{}")
    assert recorded_attempts(tmp_path, one) == [0, 12]
    assert recorded_attempts(tmp_path / "none", one) == []
