"""The write-ahead file: what was held, delivered and closed, until Postgres has it.

One line a record, and one write, without fsync, for all that was appended in a turn of the event loop: it survives the
death of any process, a power cut may cost the last second. Links ask for that write before they send (`flush`), so that
no node has a job which is not in the file. A torn or damaged line costs that line alone. Records are idempotent, so a
file that is read twice, or that overlaps with the next, changes nothing.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from sparewatt.core.errors import StartupError
from sparewatt.core.ids import MatchId
from sparewatt.core.log import Logger
from sparewatt.ledger.model import ClosedJob, Delivery, DeliveryProgress, JobState, JournalRecord, OpenedJob

_log = Logger("sparewatt.ledger")
JOURNAL_FILE = "jobs.journal"
COMPACT_AT_BYTES = 8 << 20
"""A few thousand jobs. Rewriting what is still open takes milliseconds."""
_CRC_CHARS = 8
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(OpenedJob | ClosedJob | DeliveryProgress)
CallSoon = Callable[[Callable[[], None]], object]
"""Has something called at the end of the event loop's turn: its `call_soon`."""


class Journal:
    """The journal of one gateway process. The directory is locked by whoever opens this."""

    def __init__(self, directory: Path, *, later: CallSoon | None = None) -> None:
        """Raises StartupError if the file cannot be opened. Without `later` nothing waits."""
        self._path = directory / JOURNAL_FILE
        self._later = later
        self._waiting: list[JournalRecord] = []
        """For the end of the turn. While a disk is full: what that turn opened, and what closes meanwhile."""
        self._is_scheduled = False
        self._is_failing = False
        """The last write failed: nothing is opened until one succeeds."""
        try:
            self._fd = _open(self._path)
        except OSError as error:
            raise StartupError(f"Cannot open the journal {self._path}: {error.strerror}.") from None
        self._size = os.fstat(self._fd).st_size
        self._is_torn = self._size > 0
        """The file may end in half a line, of a process that died or of a disk that was full."""

    def append(self, record: JournalRecord) -> None:
        """Raises OSError when the file takes nothing (a full disk, say): then the job must not be sent.

        The turn in which a disk fills up is the exception: its jobs run, and their lines wait until there is room.
        """
        self._waiting.append(record)
        if self._later is not None and not self._is_failing:
            self._schedule_write(self._later)
            return
        try:
            self._write()
        except OSError:
            self._waiting.pop()
            raise

    def append_soon(self, record: JournalRecord) -> None:
        """Where it is too late to refuse: a write that fails is told in the log, and the record waits on."""
        self._waiting.append(record)
        if self._later is None:
            self._write_if_possible()
        else:
            self._schedule_write(self._later)

    def flush(self) -> None:
        """Before anything is sent to a node. Costs nothing if nothing waits."""
        if self._waiting and not self._is_failing:
            self._write_if_possible()

    def _schedule_write(self, later: CallSoon) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            later(self._end_tick)

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
        """All that waits."""
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
        """Keep these alone. A crash in the middle leaves the old file, and so does OSError."""
        fresh = self._path.with_suffix(".fresh")
        fresh.unlink(missing_ok=True)
        fd = _open(fresh)
        try:
            size = _write_all(fd, records)
            fresh.replace(self._path)
        except BaseException:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._size, self._is_torn, self._is_failing = fd, size, False, False
        self._waiting.clear()

    def close(self) -> None:
        """What is appended later fails, whoever has the number of the file by then."""
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
    """Every record that is whole."""
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
    """What a process that died still has to settle: closed jobs as they are, open ones at their last known count."""
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
