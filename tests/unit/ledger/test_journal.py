"""The write-ahead file under torn writes, damage, full disks and crashes."""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.errors import StartupError
from sparewatt.core.ids import MatchId
from sparewatt.ledger import journal as journal_module
from sparewatt.ledger.journal import JOURNAL_FILE, Journal, read_journal, unsettled_jobs
from sparewatt.ledger.model import ClosedJob, DeliveryProgress, JobState, JournalRecord, OpenedJob
from sparewatt.link.send_queue import SendQueue
from sparewatt.testing.memory_socket import MemorySocket
from tests.unit.ledger.samples import NOW_S, amount, closed, delivery, opened

RECORDS: list[JournalRecord] = [
    opened("1"),
    opened("2", hold=amount(promo=7, paid=9), stream=True),
    DeliveryProgress({MatchId("match_2"): (delivery(3, 4),)}),
    closed("1", delivery(), delivery(1, 2), reason="späte Antwort"),
]


def written(directory: Path, records: list[JournalRecord] = RECORDS) -> bytes:
    journal = Journal(directory)
    for record in records:
        journal.append(record)
    journal.close()
    return (directory / JOURNAL_FILE).read_bytes()


def read(directory: Path) -> list[JournalRecord]:
    return list(read_journal(directory))


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file gets another block. What a file has already can be overwritten."""

    def reserve(_fd: int, _start: int, _n_bytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(journal_module, "reserve_space", reserve)
    monkeypatch.setattr(journal_module, "free_bytes", lambda _path: 0)


def break_disk(monkeypatch: pytest.MonkeyPatch, *, after_bytes: int = 0) -> list[bytes]:
    """Writes fail once so many bytes are written, also those to blocks that a file has. Returns what was tried."""
    real, room, tries = os.pwrite, [after_bytes], list[bytes]()

    def write(fd: int, data: bytes, at: int) -> int:
        tries.append(data)
        if room[0] <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        taken = real(fd, data[: room[0]], at)
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "pwrite", write)
    return tries


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    assert read(tmp_path) == RECORDS
    assert (tmp_path / JOURNAL_FILE).stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert read(tmp_path) == []


def test_a_directory_that_is_not_there_is_a_startup_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="Cannot open the journal"):
        Journal(tmp_path / "missing")


def test_a_file_torn_at_any_byte_loses_its_last_line_alone(tmp_path: Path) -> None:
    whole = written(tmp_path)
    for size in range(len(whole)):
        (tmp_path / JOURNAL_FILE).write_bytes(whole[:size])
        n_whole = whole[:size].count(b"\n")
        assert read(tmp_path) == RECORDS[:n_whole]


def test_what_is_appended_after_a_torn_line_is_read(tmp_path: Path) -> None:
    whole = written(tmp_path)
    for size in range(0, len(whole), 7):
        (tmp_path / JOURNAL_FILE).write_bytes(whole[:size])
        written(tmp_path, [opened("new")])
        assert read(tmp_path)[-1] == opened("new")
        assert set(map(repr, read(tmp_path))) <= set(map(repr, [*RECORDS, opened("new")]))


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_costs_at_most_two_lines_and_invents_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    damaged = bytearray(written(directory))
    damaged[at % len(damaged)] ^= 1 << bit
    (directory / JOURNAL_FILE).write_bytes(damaged)
    found = read(directory)
    assert [record for record in RECORDS if record in found] == found
    assert len(found) >= len(RECORDS) - 2


def test_a_line_of_another_shape_is_skipped(tmp_path: Path) -> None:
    text = b'{"type":"unheard of"}'
    whole = written(tmp_path)
    (tmp_path / JOURNAL_FILE).write_bytes(b"%08x %b\n" % (zlib.crc32(text), text) + b"\n\xff\xfe\n" + whole)
    assert read(tmp_path) == RECORDS


def test_a_write_that_fails_raises_and_the_next_line_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (0, 1, 8, 9, 50):
        (tmp_path / JOURNAL_FILE).unlink(missing_ok=True)
        journal = Journal(tmp_path)
        journal.append(opened("before"))
        with monkeypatch.context() as broken:
            break_disk(broken, after_bytes=room)
            for name in ("lost", "lost too"):
                with pytest.raises(OSError, match=r"No space left|Input/output"):
                    journal.append(opened(name))
        journal.append(opened("after"))
        journal.close()
        assert read(tmp_path) == [opened("before"), opened("after")]


# a full disk


def test_a_job_is_opened_only_if_its_closing_record_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the disk full from its first moment on, and after any number of jobs, what was opened can be closed."""
    monkeypatch.setattr(journal_module, "RESERVE_STEP_BYTES", 20_000)
    tick = Tick()
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    journal.append(opened("0"))
    with monkeypatch.context() as full:
        fill_disk(full)
        names = ["0"]
        while journal.trouble is None:
            with suppress(OSError):
                journal.append(opened(str(len(names))))
                names.append(str(len(names)))
        assert 1 < len(names) < 6
        for name in names:
            journal.append_final(DeliveryProgress({MatchId(f"match_{name}"): (delivery(),) * 3}))
            journal.append_soon(closed(name, *(delivery(),) * 9, reason="x" * 200))
        tick.end()
        assert [record.job.id for record in read(tmp_path) if isinstance(record, ClosedJob)] == [
            f"match_{name}" for name in names
        ]
        assert {record.id for record in read(tmp_path) if isinstance(record, OpenedJob)} == {
            f"match_{name}" for name in names
        }
    journal.close()


def test_progress_never_takes_the_room_of_closing_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "RESERVE_STEP_BYTES", 3 * journal_module.JOB_RESERVE_BYTES)
    journal = Journal(tmp_path)
    for name in "12":
        journal.append(opened(name))
    fill_disk(monkeypatch)
    noted = 0
    with suppress(OSError):
        for noted in range(10_000):
            journal.append(DeliveryProgress({MatchId("match_1"): (delivery(3, noted),)}))
    assert 0 < noted < 100
    for name in "12":
        journal.append_soon(closed(name, *(delivery(),) * 9))
    assert [record for record in read(tmp_path) if isinstance(record, ClosedJob)] == [
        closed(name, *(delivery(),) * 9) for name in "12"
    ]
    journal.close()


def test_a_full_disk_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    with monkeypatch.context() as full:
        fill_disk(full)
        with pytest.raises(OSError, match="No space left"):
            journal.append(opened("1"))
        error = journal.check()
        assert error is not None
        assert error.errno == errno.ENOSPC
    assert journal.check() is None
    journal.append(opened("2"))
    assert read(tmp_path) == [opened("2")]
    journal.close()


def test_a_disk_that_is_as_good_as_full_takes_no_new_job_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append(opened("1"))
    assert journal.check() is None
    with monkeypatch.context() as low:
        low.setattr(journal_module, "free_bytes", lambda _path: journal_module.DISK_LOW_BYTES - 1)
        assert journal.check() is not None
        with pytest.raises(OSError, match="No space left"):
            journal.append(opened("2"))
        journal.append_soon(closed("1"))
    journal.append(opened("3"))
    journal.close()
    assert read(tmp_path) == [opened("1"), closed("1"), opened("3")]


def test_an_answer_that_cannot_be_written_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Tick()
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    journal.append(opened("1"))
    whole = DeliveryProgress({MatchId("match_1"): (delivery(3, 9),)})
    journal.append_final(whole)
    assert read(tmp_path) == [opened("1"), whole]
    with monkeypatch.context() as broken:
        break_disk(broken)
        with pytest.raises(OSError, match="Input/output"):
            journal.append_final(whole)
    tick.end()
    journal.close()


def test_after_kill_9_the_reserved_room_is_no_record(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(opened("1"))
    left = (tmp_path / JOURNAL_FILE).read_bytes()
    assert left.endswith(bytes(journal_module.JOB_RESERVE_BYTES))
    assert read(tmp_path) == [opened("1")]
    again = Journal(tmp_path)
    again.append(opened("2"))
    again.close()
    assert read(tmp_path) == [opened("1"), opened("2")]
    journal.close()


# what can wait for the end of the tick


class Tick:
    """A tick of the event loop: scheduled calls run at its end."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []

    def end(self) -> None:
        calls = self.scheduled[:]
        self.scheduled.clear()
        for call in calls:
            call()


def counted_writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    real, writes = os.pwrite, list[bytes]()

    def write(fd: int, data: bytes, at: int) -> int:
        writes.append(data)
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    return writes


def test_what_is_appended_in_a_tick_is_one_write_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick, writes = Tick(), counted_writes(monkeypatch)
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    for n in (1, 2):
        journal.append(opened("1"))
        journal.append_soon(closed("1"))
        journal.append(opened("2"))
        assert len(tick.scheduled) == 1
        assert len(writes) == n - 1
        tick.end()
    journal.close()
    assert len(writes) == 2
    assert read(tmp_path) == [opened("1"), closed("1"), opened("2")] * 2


def test_what_waits_is_written_before_a_link_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick, writes = Tick(), counted_writes(monkeypatch)
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    journal.append(opened("1"))
    for _ in range(3):
        journal.flush()
    assert read(tmp_path) == [opened("1")]
    journal.append(opened("2"))
    tick.end()
    journal.close()
    assert read(tmp_path) == [opened("1"), opened("2")]
    assert len(writes) == 2


def test_what_a_broken_disk_does_not_take_waits_on_and_no_job_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (0, 1, 8, 9, 50, 300):
        (tmp_path / JOURNAL_FILE).unlink(missing_ok=True)
        tick = Tick()
        journal = Journal(tmp_path, call_soon=tick.scheduled.append)
        with monkeypatch.context() as broken:
            break_disk(broken, after_bytes=room)
            journal.append(opened("1"))
            journal.append(opened("2"))
            tick.end()
            journal.append_soon(closed("1"))
            journal.flush()
            for name in "34":
                with pytest.raises(OSError, match=r"No space left|Input/output"):
                    journal.append(opened(name))
            tick.end()
        journal.append(opened("5"))
        journal.append(opened("6"))
        tick.end()
        journal.close()
        assert read(tmp_path) == [opened("1"), opened("2"), closed("1"), opened("5"), opened("6")]


def test_a_broken_disk_is_not_tried_for_every_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Tick()
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    with monkeypatch.context() as broken:
        tries = break_disk(broken)
        journal.append(opened("1"))
        for _ in range(5):
            journal.flush()
        assert len(tries) == 1
    tick.end()
    journal.close()
    assert read(tmp_path) == [opened("1")]


def test_asking_a_broken_disk_again_and_again_lets_nothing_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    with monkeypatch.context() as broken:
        tries = break_disk(broken)
        for _ in range(50):
            with pytest.raises(OSError, match="Input/output"):
                journal.append(opened("1"))
            assert journal.check() is not None
        assert max(map(len, tries)) <= len(tries[0])
    assert (tmp_path / JOURNAL_FILE).stat().st_size <= 2 * journal_module.RESERVE_STEP_BYTES
    assert journal.check() is None
    journal.close()
    assert read(tmp_path) == []


def test_what_waits_is_written_when_it_closes_and_dropped_when_it_is_rewritten(tmp_path: Path) -> None:
    tick = Tick()
    journal = Journal(tmp_path, call_soon=tick.scheduled.append)
    journal.append_soon(closed("1"))
    journal.compact([opened("2")])
    tick.end()
    assert read(tmp_path) == [opened("2")]
    journal.append_soon(closed("2"))
    journal.close()
    assert read(tmp_path) == [opened("2"), closed("2")]
    tick.end()


class Wire(MemorySocket):
    """Notes what the journal held when something was sent."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.sent: list[tuple[bytes, list[JournalRecord]]] = []
        self.directory = directory

    def send(self, message: bytes) -> None:
        self.sent.append((message, read(self.directory)))


async def test_a_job_is_in_the_journal_before_its_frames_leave_by_a_link_that_was_about_to_send(tmp_path: Path) -> None:
    journal = Journal(tmp_path, call_soon=asyncio.get_running_loop().call_soon)
    wire, outbox = Wire(tmp_path), SendQueue(before_sending=journal.flush)
    outbox.attach(wire, on_stuck=lambda _error: None)
    outbox.put(b"credit ")
    journal.append_soon(closed("0"))
    journal.append(opened("1"))
    outbox.put(b"job")
    await asyncio.sleep(0)
    journal.close()
    assert wire.sent == [(b"credit job", [closed("0"), opened("1")])]


def test_rewriting_keeps_what_it_is_given_and_goes_on(tmp_path: Path) -> None:
    written(tmp_path)
    journal = Journal(tmp_path)
    journal.compact(RECORDS[1:3])
    journal.append(opened("new"))
    journal.close()
    assert read(tmp_path) == [*RECORDS[1:3], opened("new")]


def test_rewriting_to_nothing_leaves_an_empty_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    was_empty = [journal.is_empty]
    journal.append(opened())
    was_empty.append(journal.is_empty)
    journal.compact([])
    was_empty.append(journal.is_empty)
    journal.close()
    assert was_empty == [True, False, True]
    assert (tmp_path / JOURNAL_FILE).read_bytes() == b""


def records_then_no_space() -> Iterator[JournalRecord]:
    yield RECORDS[0]
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_rewrite_that_fails_leaves_the_old_file_and_can_still_be_appended_to(tmp_path: Path) -> None:
    written(tmp_path)
    journal = Journal(tmp_path)
    with pytest.raises(OSError, match="No space"):
        journal.compact(records_then_no_space())
    journal.append(opened("new"))
    journal.close()
    assert read(tmp_path) == [*RECORDS, opened("new")]


def test_a_rewrite_that_fails_takes_no_room_and_no_promise_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.append(opened("1"))
    with monkeypatch.context() as full:
        fill_disk(full)
        with pytest.raises(OSError, match="No space left"):
            journal.compact([opened("1")])
        assert sorted(path.name for path in tmp_path.iterdir()) == [JOURNAL_FILE]
        journal.append_soon(closed("1"))
        assert read(tmp_path) == [opened("1"), closed("1")]
    journal.close()


def test_rewriting_keeps_room_for_the_jobs_that_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    journal.append(opened("1"))
    journal.compact([opened("1"), closed("0")])
    fill_disk(monkeypatch)
    journal.append_soon(closed("1", *(delivery(),) * 9))
    assert read(tmp_path) == [opened("1"), closed("0"), closed("1", *(delivery(),) * 9)]
    journal.close()


def test_a_crash_in_the_middle_of_rewriting_leaves_the_old_file(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "jobs.fresh").write_bytes(b"half a li")
    assert read(tmp_path) == RECORDS
    journal = Journal(tmp_path)
    journal.compact(RECORDS[:1])
    journal.close()
    assert read(tmp_path) == RECORDS[:1]


def test_compaction_is_due_when_it_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMPACT_AT_BYTES", 500)
    journal = Journal(tmp_path)
    journal.append(opened())
    was_long = [journal.needs_compaction]
    journal.append(closed("1", delivery(), delivery(), delivery()))
    was_long.append(journal.needs_compaction)
    journal.compact([])
    was_long.append(journal.needs_compaction)
    journal.close()
    assert was_long == [False, True, False]


# what is left over


def test_an_open_job_is_settled_at_its_last_progress() -> None:
    by_id = {job.job.id: job for job in unsettled_jobs(RECORDS, now_unix_s=NOW_S + 9)}
    assert by_id[MatchId("match_1")] == RECORDS[3]
    cut = by_id[MatchId("match_2")]
    assert (cut.state, cut.closed_unix_s, cut.deliveries) == (JobState.FAILED, NOW_S + 9, (delivery(3, 4),))


def test_the_last_progress_counts() -> None:
    counts = [DeliveryProgress({MatchId("match_1"): (delivery(3, n),)}) for n in (1, 5, 9)]
    (cut,) = unsettled_jobs([opened(), *counts], now_unix_s=NOW_S)
    assert cut.deliveries == (delivery(3, 9),)


def test_a_closing_whose_opening_was_lost_still_counts() -> None:
    assert unsettled_jobs(RECORDS[3:], now_unix_s=NOW_S) == RECORDS[3:]


def test_progress_of_an_unknown_job_is_ignored() -> None:
    assert unsettled_jobs([RECORDS[2]], now_unix_s=NOW_S) == []


@given(st.permutations(RECORDS), st.integers(0, 4))
def test_reading_records_twice_or_in_another_order_changes_nothing(mixed: list[JournalRecord], n_again: int) -> None:
    once = unsettled_jobs(RECORDS, now_unix_s=NOW_S)
    again = unsettled_jobs([*mixed, *mixed[:n_again]], now_unix_s=NOW_S)
    assert sorted(again, key=repr) == sorted(once, key=repr)
