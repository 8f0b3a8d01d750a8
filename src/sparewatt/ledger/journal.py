"""The write-ahead log (WAL): an append-only file of jobs opened, in progress and closed, until Postgres has them.

Group commit: all records of one tick of the event loop are one write, without fsync. They survive the death of any
process; a power cut may cost the last second. Links call `flush` before they send, so that no node has a job that is
not in the file. Each record is a line with a checksum: a torn or damaged line costs that line alone. Records are
idempotent, so replaying a file twice changes nothing.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from sparewatt.core.cleanup import on_failure
from sparewatt.core.errors import StartupError
from sparewatt.core.ids import MatchId
from sparewatt.core.log import Logger
from sparewatt.ledger.model import ClosedJob, Delivery, DeliveryProgress, JobState, JournalRecord, OpenedJob

_log = Logger("sparewatt.ledger")
JOURNAL_FILE = "jobs.journal"
COMPACT_AT_BYTES = 8 << 20
"""A few thousand jobs. Compaction takes milliseconds."""
_CRC_CHARS = 8
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(OpenedJob | ClosedJob | DeliveryProgress)
CallSoon = Callable[[Callable[[], None]], object]
"""The event loop's `call_soon`: calls back at the end of the tick."""


class Journal:
    """The journal of one gateway process. The caller locks the directory."""

    def __init__(self, directory: Path, *, call_soon: CallSoon | None = None) -> None:
        """Raises StartupError if the file cannot be opened. Without `call_soon` every record is written at once."""
        self._path = directory / JOURNAL_FILE
        self._call_soon = call_soon
        self._waiting: list[JournalRecord] = []
        """To be written at the end of the tick. While the disk is full: also every job that closes meanwhile."""
        self._is_scheduled = False
        self._is_failing = False
        """The last write failed: no job is opened until one succeeds."""
        try:
            self._fd = _open(self._path)
        except OSError as error:
            raise StartupError(f"Cannot open the journal {self._path}: {error.strerror}.") from None
        self._size = os.fstat(self._fd).st_size
        self._is_torn = self._size > 0
        """The file may end in half a line, after a crash or on a full disk."""

    def append(self, record: JournalRecord) -> None:
        """Raises OSError if the file cannot be written (the disk is full, say): then the job must not be sent.

        The tick in which the disk fills up is the exception: its jobs run, and their records wait for room.
        """
        self._waiting.append(record)
        if self._call_soon is not None and not self._is_failing:
            self._schedule_write(self._call_soon)
            return
        try:
            self._write()
        except OSError:
            self._waiting.pop()
            raise

    def append_soon(self, record: JournalRecord) -> None:
        """For what cannot be refused: if the write fails, that is logged and the record waits."""
        self._waiting.append(record)
        if self._call_soon is None:
            self._write_if_possible()
        else:
            self._schedule_write(self._call_soon)

    def flush(self) -> None:
        """Write now, before a frame is sent to a node."""
        if self._waiting and not self._is_failing:
            self._write_if_possible()

    def _schedule_write(self, call_soon: CallSoon) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            call_soon(self._end_tick)

    def _end_tick(self) -> None:
        self._is_scheduled = False
        if self._waiting:
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        try:
            self._write()
        except OSError as error:
            _log.warning("journal_unwritable", error=error.strerror)

    def _write(self) -> None:
        lines = b"".join([_line(record) for record in self._waiting])
        if self._is_torn:
            lines = b"\n" + lines
        self._is_failing = True
        written = os.write(self._fd, lines)
        self._size += written
        self._is_torn = written != len(lines)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_failing = False
        self._waiting.clear()

    @property
    def is_empty(self) -> bool:
        return self._size == 0

    @property
    def needs_compaction(self) -> bool:
        return self._size > COMPACT_AT_BYTES

    def compact(self, records: Iterable[JournalRecord]) -> None:
        """Rewrite the file with these records alone. After a crash, or OSError, the old file is still there."""
        fresh = self._path.with_suffix(".fresh")
        fresh.unlink(missing_ok=True)
        fd = _open(fresh)
        with on_failure(os.close, fd):
            size = _write_all(fd, records)
            fresh.replace(self._path)
        os.close(self._fd)
        self._fd, self._size, self._is_torn, self._is_failing = fd, size, False, False
        self._waiting.clear()

    def close(self) -> None:
        """What is appended later fails, even if another file has this descriptor's number by then."""
        self._end_tick()
        os.close(self._fd)
        self._fd = -1


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_all(fd: int, records: Iterable[JournalRecord]) -> int:
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.writelines(map(_line, records))
    return os.fstat(fd).st_size


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
