"""The write-ahead log (WAL): an append-only file of jobs opened, in progress and closed, until Postgres has them.

Group commit: all records of one tick of the event loop are one write, without fsync. They survive the death of any
process; a power cut may cost the last second. `flush` comes before a job leaves for a node, and before its client has
the end of the answer. The file is preallocated: a job is opened only if its closing record fits into blocks that the
file has already, so that on a full disk new jobs are refused and those that run are booked whole. Each record is a line
with a checksum: a damaged line costs that line alone. Records are idempotent: replaying a file twice changes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from sparewatt.core.cleanup import on_failure
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import MatchId
from sparewatt.core.limits import KIB, MIB
from sparewatt.ledger.model import ClosedJob, Delivery, DeliveryProgress, JobState, JournalRecord, OpenedJob
from sparewatt.machine.disk import disk_full_error, free_bytes, reserve_space

JOURNAL_FILE = "jobs.journal"
COMPACT_AT_BYTES = 8 * MIB
"""A few thousand jobs. Compaction takes milliseconds."""
RESERVE_STEP_BYTES = 1 * MIB
"""The file grows by this much at a time: some hundred microseconds for a thousand jobs."""
JOB_RESERVE_BYTES = 4 * KIB
"""Kept for each open job: its last progress and its closing record, 1 kB for most and 4 kB after many failovers."""
DISK_LOW_BYTES = 2 * MIB
"""With less than this the disk counts as full: the next two steps would fill it."""
_CRC_CHARS = 8
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(OpenedJob | ClosedJob | DeliveryProgress)
CallSoon = Callable[[Callable[[], None]], object]
"""The event loop's `call_soon`: calls back at the end of the tick."""


class Journal:
    """The journal of one gateway process. The caller locks the directory."""

    def __init__(self, directory: Path, *, call_soon: CallSoon | None = None) -> None:
        """Raises StartupError if the file cannot be opened. Without `call_soon` every record is written at once."""
        self.path = directory / JOURNAL_FILE
        self.trouble: OSError | None = None
        """Why no job can be opened: the last write or reservation failed, or the disk is as good as full."""
        self._call_soon = call_soon
        self._is_scheduled = False
        self._waiting: list[bytes] = []
        """To be written at the end of the tick, or when a write succeeds again."""
        self._open_jobs = 0
        """Each has room for its closing record."""
        try:
            self._fd = _open(self.path)
            content = self.path.read_bytes().rstrip(b"\0")
        except OSError as error:
            raise StartupError(f"Cannot open the journal {self.path}: {error.strerror}.") from None
        self._end = len(content)
        """Of the last record. Zeros follow, up to `_reserved`."""
        self._planned_end = self._end
        """With those that wait."""
        self._reserved = os.fstat(self._fd).st_size
        if content and not content.endswith(b"\n"):
            self._put(b"\n")  # it ends in half a line, after a crash

    def append(self, record: JournalRecord) -> None:
        """Raises OSError if there is no room (the disk is full, say) or no writing: then the job must not be sent.

        For jobs that open, and for progress. Neither takes the room that is kept for closing records. An I/O error is
        noticed when the tick ends: its jobs run, and their records wait.
        """
        line, kept = _line(record), self._open_jobs * JOB_RESERVE_BYTES
        is_opening = isinstance(record, OpenedJob)
        if is_opening:
            self._end_trouble()
            kept += JOB_RESERVE_BYTES
        self._make_room(len(line) + kept)
        if self._call_soon is None:
            self._write_at_once(line)
        else:
            self._put(line)
            self._schedule_write(self._call_soon)
        self._open_jobs += is_opening

    def append_final(self, progress: DeliveryProgress) -> None:
        """What a job has delivered once it is whole, written now. Raises OSError: then its client must not have it."""
        line = _line(progress)
        self._make_room(len(line))
        self._put(line)
        self._write()

    def append_soon(self, record: JournalRecord) -> None:
        """For a job that has closed, which cannot be refused: if the write fails, the record waits."""
        line = _line(record)
        self._open_jobs = max(0, self._open_jobs - 1)
        with suppress(OSError):
            self._make_room(len(line))
        self._put(line)
        if self._call_soon is None:
            self._write_if_possible()
        else:
            self._schedule_write(self._call_soon)

    def flush(self) -> None:
        """Write now: before a frame is sent to a node, and before a client has the end of an answer."""
        if self._waiting and self.trouble is None:
            self._write_if_possible()

    def check(self) -> OSError | None:
        """Whether a job could be opened now: None, or why not. Ends the trouble when its cause is gone."""
        try:
            if self.trouble is None:
                self._refuse_low_disk()
            self._end_trouble()
        except OSError as error:
            self.trouble = error
        return self.trouble

    def _end_trouble(self) -> None:
        """After a failure: find out whether reserving and writing succeed again. Raises OSError."""
        if self.trouble is None:
            return
        self._refuse_low_disk()
        self._make_room(self._open_jobs * JOB_RESERVE_BYTES + RESERVE_STEP_BYTES)
        if not self._waiting:
            self._put(b"\n")
        self._write()
        self.trouble = None

    def _refuse_low_disk(self) -> None:
        if free_bytes(self.path.parent) < DISK_LOW_BYTES:
            raise disk_full_error()

    def _make_room(self, n_bytes: int) -> None:
        missing = self._planned_end + n_bytes - self._reserved
        if missing > 0:
            self._reserve(max(missing, RESERVE_STEP_BYTES))

    def _reserve(self, n_bytes: int) -> None:
        try:
            reserve_space(self._fd, self._reserved, n_bytes)
        except OSError as error:
            self.trouble = error
            raise
        self._reserved += n_bytes

    def _put(self, line: bytes) -> None:
        self._waiting.append(line)
        self._planned_end += len(line)

    def _schedule_write(self, call_soon: CallSoon) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            call_soon(self._end_tick)

    def _end_tick(self) -> None:
        self._is_scheduled = False
        if self._waiting:
            self._write_if_possible()

    def _write_at_once(self, line: bytes) -> None:
        self._put(line)
        try:
            self._write()
        except OSError:
            self._waiting.pop()
            self._planned_end -= len(line)
            raise

    def _write_if_possible(self) -> None:
        with suppress(OSError):
            self._write()

    def _write(self) -> None:
        """All that waits. What a failed write has torn is overwritten by the next one."""
        lines = b"".join(self._waiting)
        try:
            if os.pwrite(self._fd, lines, self._end) != len(lines):
                raise disk_full_error()
        except OSError as error:
            self.trouble = error
            raise
        self._end += len(lines)
        self._waiting.clear()

    @property
    def is_empty(self) -> bool:
        return self._end == 0

    @property
    def needs_compaction(self) -> bool:
        return self._end > COMPACT_AT_BYTES

    def compact(self, records: Iterable[JournalRecord]) -> None:
        """Rewrite the file with these records alone. After a crash, or OSError, the old file is still there."""
        fresh = self.path.with_suffix(".fresh")
        fresh.unlink(missing_ok=True)
        fd = _open(fresh)
        with on_failure(_discard, fd, fresh):
            end, open_jobs = _write_all(fd, records)
            reserved = end + open_jobs * JOB_RESERVE_BYTES
            if reserved > end:
                reserve_space(fd, end, reserved - end)
            fresh.replace(self.path)
        os.close(self._fd)
        self._fd, self._end, self._planned_end, self._reserved = fd, end, end, reserved
        self._open_jobs = open_jobs
        self._waiting.clear()

    def close(self) -> None:
        """What is appended later fails, even if another file has this descriptor's number by then."""
        self._end_tick()
        os.ftruncate(self._fd, self._end)
        os.close(self._fd)
        self._fd = -1


def _discard(fd: int, path: Path) -> None:
    os.close(fd)
    path.unlink(missing_ok=True)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write_all(fd: int, records: Iterable[JournalRecord]) -> tuple[int, int]:
    """How long the file is then, and how many of them are open jobs."""
    open_jobs = 0
    with os.fdopen(fd, "wb", closefd=False) as file:
        for record in records:
            open_jobs += isinstance(record, OpenedJob)
            file.write(_line(record))
    return os.fstat(fd).st_size, open_jobs


def _line(record: JournalRecord) -> bytes:
    text = _encoder.encode(record)
    return b"%08x %b\n" % (zlib.crc32(text), text)


def read_journal(directory: Path) -> Iterator[JournalRecord]:
    """Every undamaged record."""
    path = directory / JOURNAL_FILE
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            record = _read(line)
            if record is not None:
                yield record


def _read(line: bytes) -> JournalRecord | None:
    crc, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or len(crc) != _CRC_CHARS or crc != b"%08x" % zlib.crc32(text):
        return None
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None


def unsettled_jobs(records: Iterable[JournalRecord], *, now_unix_s: float) -> list[ClosedJob]:
    """WAL replay: what a dead process had to settle. Closed jobs as they are, open ones at their last progress."""
    opened: dict[MatchId, OpenedJob] = {}
    closed: dict[MatchId, ClosedJob] = {}
    delivered: dict[MatchId, tuple[Delivery, ...]] = {}
    for record in records:
        match record:
            case OpenedJob():
                opened[record.id] = record
            case ClosedJob():
                closed[record.job.id] = record
            case DeliveryProgress():
                delivered |= record.deliveries
    for job_id, job in opened.items():
        if job_id not in closed:
            closed[job_id] = _close_interrupted(job, delivered.get(job_id, ()), now_unix_s=now_unix_s)
    return list(closed.values())


def _close_interrupted(job: OpenedJob, deliveries: tuple[Delivery, ...], *, now_unix_s: float) -> ClosedJob:
    return ClosedJob(job, JobState.FAILED, now_unix_s, deliveries, "the gateway stopped in the middle")
