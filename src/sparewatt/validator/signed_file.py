"""The write-ahead file of a validator's signatures: nothing that it signed leaves the machine before it is in here.

One line per signature, with a checksum, appended and fsynced. The first line binds the file to one chain, one contract
and one vote key. There is one entry per slot (a kind of message for an order and attempt, and round for votes; an epoch
and round for snapshots; a lease, its term and a time for outages): a second, different one is refused here, whatever
asked for it. The file itself is locked, so two processes never sign with one key. A last line that the disk has in part
was never sent and is cut off; other damage refuses to start.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from sparewatt.core.errors import InvalidField, StartupError
from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import Locker, fsync_dir, platform_locker
from sparewatt.market.match.model import SignedRecord
from sparewatt.market.snapshots.model import SnapshotEntry
from sparewatt.protocol.contracts.match import CommitList, Down, Observations, ReputationSnapshot, RevealList, Vote
from sparewatt.protocol.contracts.match_messages import (
    SignedCommitList,
    SignedRevealList,
    SignedVote,
    decode_message,
    encode_message,
)
from sparewatt.protocol.contracts.message_json import read_message, write_message
from sparewatt.protocol.contracts.outage_messages import SignedDown, decode_outage_message, encode_outage_message
from sparewatt.protocol.typed_message import TypedMessage, struct_hash

_log = Logger("sparewatt.validator")
SIGNED_FILE = "signed.wal"
COMPACT_BYTES = 4 * MIB
"""Growth after which old entries are dropped; a quiet network writes this in months."""
SIGNED_FILE_BYTES_MAX = 1024 * MIB
"""Of a file that is read at start."""
EPOCHS_KEPT = 8
"""Newest epochs whose entries stay whatever their age: an epoch is open until its snapshot is on the chain."""

StoredRecord: TypeAlias = SignedRecord | SnapshotEntry | SignedDown
SignedStruct: TypeAlias = CommitList | RevealList | Vote | ReputationSnapshot | Observations | Down
_SNAPSHOT_KINDS: dict[str, type[TypedMessage]] = {"snapshot": ReputationSnapshot, "observations": Observations}

Slot: TypeAlias = tuple[str, bytes | int, int, int]
"""Kind, then order, attempt and round; or epoch and round; or lease, term and time."""
_DOWN = "down"


class SignedTwice(Exception):
    """A second, different message for a slot that was signed. Sending it would be a proven fault."""


class SignedFileFailed(Exception):
    """The disk did not take an entry. Nothing may be sent: the process ends and reads the disk when it starts."""


class FileBinding(msgspec.Struct, frozen=True):
    """What a file's signatures are good for."""

    chain_id: int
    genesis_hash: str
    task_manager: str
    vote_key: str


class _Entry(msgspec.Struct, frozen=True):
    at: int
    kind: str
    body: msgspec.Raw
    signature: str = ""
    """Of an entry about a snapshot; a match's messages contain theirs."""


@dataclass(frozen=True, slots=True)
class StoredSignature:
    at: int
    """Chain time."""
    record: StoredRecord

    @property
    def kind(self) -> str:
        return slot_of(self.record)[0]


@dataclass(slots=True)
class _Place:
    """Where an entry stands in the file."""

    offset: int
    length: int
    at: int
    digest: bytes


class SignedFile:
    """Open and locked. `append` before anything of the same step is sent."""

    def __init__(self, path: Path, *, binding: FileBinding, is_old: bool = False, locker: Locker | None = None) -> None:
        """Create or open it. `is_old`: its key was used, so a file without a first line has lost what was in it.

        Raises StartupError: locked, of another chain or key, damaged.
        """
        self.path = path
        self.binding = binding
        self._is_old = is_old
        self._locker = locker or platform_locker()
        self._places: dict[Slot, _Place] = {}
        self._is_broken = False
        self._fd = _open_locked(path, self._locker)
        try:
            self._load()
        except BaseException:
            os.close(self._fd)
            raise
        self._compact_at = self._size + COMPACT_BYTES

    def close(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __len__(self) -> int:
        return len(self._places)

    # writing

    def append(self, records: Sequence[StoredRecord], *, at: int) -> None:
        """Make them durable, all or none. What is there already is left as it is.

        Raises SignedTwice without writing anything, SignedFileFailed if the disk fails.
        """
        new = [record for record in records if not self._is_stored(record)]
        if not new:
            return
        lines = [_line(_entry(record, at)) for record in new]
        offset = self._size
        self._write(b"".join(lines))
        for record, line in zip(new, lines, strict=True):
            self._places[slot_of(record)] = _Place(offset, len(line), at, struct_hash(signed_struct(record)))
            offset += len(line)

    def compact(self, *, older_than: int) -> None:
        """Once the file has grown, drop entries signed before this chain time, but those of the newest epochs."""
        if self._size < self._compact_at:
            return
        newest = max((slot[1] for slot in self._places if isinstance(slot[1], int)), default=0)
        kept = [
            place
            for slot, place in self._places.items()
            if place.at >= older_than or (isinstance(slot[1], int) and slot[1] > newest - EPOCHS_KEPT)
        ]
        try:
            self._replace([self._read(place) for place in sorted(kept, key=lambda place: place.offset)])
        except OSError as error:  # the file stays as it is
            _log.warning("signed_file_not_compacted", why=error.strerror)
        self._compact_at = self._size + COMPACT_BYTES

    # reading

    def of_match(self, order_id: bytes, attempt: int) -> list[SignedRecord]:
        """Everything that was signed for an attempt."""
        places = [place for slot, place in self._places.items() if slot[1:3] == (order_id, attempt)]
        records = [_stored(self._read(place)).record for place in places]
        return [record for record in records if not isinstance(record, SnapshotEntry | SignedDown)]

    def of_snapshots(self) -> list[SnapshotEntry]:
        """What was signed for the newest epochs."""
        places = [place for slot, place in self._places.items() if isinstance(slot[1], int)]
        records = [_stored(self._read(place)).record for place in places]
        return [record for record in records if isinstance(record, SnapshotEntry)]

    def of_outages(self) -> list[SignedDown]:
        """Votes that a provider is down."""
        places = [place for slot, place in self._places.items() if slot[0] == _DOWN]
        records = [_stored(self._read(place)).record for place in places]
        return [record for record in records if isinstance(record, SignedDown)]

    # internals

    def _is_stored(self, record: StoredRecord) -> bool:
        slot = slot_of(record)
        place = self._places.get(slot)
        if place is None:
            return False
        if place.digest != struct_hash(signed_struct(record)):
            raise SignedTwice(f"a different {slot[0]} was signed for this slot before")
        return True

    def _write(self, data: bytes) -> None:
        if self._is_broken:
            raise SignedFileFailed("an earlier entry could not be written")
        try:
            _write_all(self._fd, data, at=self._size)
            os.fsync(self._fd)
        except OSError as error:
            self._is_broken = True
            raise SignedFileFailed(f"{self.path} cannot be written: {error.strerror}") from error
        self._size += len(data)

    def _read(self, place: _Place) -> bytes:
        return os.pread(self._fd, place.length, place.offset)

    def _load(self) -> None:
        size = os.fstat(self._fd).st_size
        if size > SIGNED_FILE_BYTES_MAX:
            raise StartupError(
                f"{self.path} has more than {SIGNED_FILE_BYTES_MAX // MIB} MiB. This is a mistake of ours."
            )
        data = os.pread(self._fd, size, 0)
        while size and len(data) < size:  # a read may give less than it was asked for
            data += os.pread(self._fd, size - len(data), len(data))
        header, end = _header(data, self.path)
        if header is None and self._is_old:
            raise _damaged(self.path)
        if header is None:
            self._size = 0
            os.ftruncate(self._fd, 0)
            self._write(_line(self.binding))
            fsync_dir(self.path.parent)
            return
        self._require_ours(header)
        for offset, line in _whole_lines(data, end, self.path):
            self._index(line, offset)
            end = offset + len(line)
        os.ftruncate(self._fd, end)
        self._size = end

    def _require_ours(self, header: FileBinding) -> None:
        if header == self.binding:
            return
        if header.vote_key != self.binding.vote_key:
            raise StartupError(
                f"{self.path} holds the signatures of the vote key {header.vote_key}, but vote.key beside it is "
                f"{self.binding.vote_key}. Put the right key back, or give a new vote key a --data of its own."
            )
        raise StartupError(
            f"{self.path} belongs to chain {header.chain_id} (first block {header.genesis_hash[:18]}…, task_manager "
            f"{header.task_manager}), and this is chain {self.binding.chain_id} (first block "
            f"{self.binding.genesis_hash[:18]}…, task_manager {self.binding.task_manager}). Give a validator of "
            "another chain a --data of its own."
        )

    def _index(self, line: bytes, offset: int) -> None:
        stored = _stored(line)
        place = _Place(offset, len(line), stored.at, struct_hash(signed_struct(stored.record)))
        self._places[slot_of(stored.record)] = place

    def _replace(self, lines: Sequence[bytes]) -> None:
        """A new file, locked before it takes the old one's name."""
        temporary = self.path.with_suffix(".tmp")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
        try:
            self._locker(fd)
            _write_all(fd, _line(self.binding) + b"".join(lines), at=0)
            os.fsync(fd)
            temporary.replace(self.path)
            fsync_dir(self.path.parent)
        except OSError:
            os.close(fd)
            temporary.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd = fd
        offset = len(_line(self.binding))
        self._places.clear()
        for line in lines:
            self._index(line, offset)
            offset += len(line)
        self._size = offset


def require_unused(path: Path) -> None:
    """Raises StartupError while a process has the file open."""
    os.close(_open_locked(path, platform_locker()))


def _open_locked(path: Path, locker: Locker) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        fd = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise StartupError(f"Cannot open {path}: {error.strerror}. Choose another --data.") from None
    # A holder that compacts renames a new file over the one that was just opened: its lock is on the new one.
    if locker(fd) and _is_at(path, fd):
        return fd
    os.close(fd)
    raise StartupError(
        f"Another validator signs with the vote key of {path.parent}: its write-ahead file is locked. Two processes "
        "with one vote key would be slashed. Stop the other one, or give this one a --data of its own."
    )


def signed_struct(record: StoredRecord) -> SignedStruct:
    """What the signature is of."""
    match record:
        case SignedVote():
            return record.vote
        case SignedCommitList() | SignedRevealList():
            return record.list
        case SnapshotEntry():
            return record.message
        case SignedDown():
            return record.down


def slot_of(record: StoredRecord) -> Slot:
    match signed_struct(record):
        case Vote() as vote:
            return ("vote", vote.order_id, vote.attempt, vote.round)
        case CommitList() as commits:
            return ("commit_list", commits.order_id, commits.attempt, 0)
        case RevealList() as reveals:
            return ("reveal_list", reveals.order_id, reveals.attempt, 0)
        case ReputationSnapshot() as snapshot:
            return ("snapshot", snapshot.epoch, snapshot.round, 0)
        case Observations() as observations:
            return ("observations", observations.epoch, 0, 0)
        case Down() as down:
            return (_DOWN, down.lease_id, down.term, down.down_since)


def read_signatures(path: Path) -> list[StoredSignature]:
    """All entries, for a look from outside while the validator runs; none if there is no file. Raises StartupError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StartupError(f"Cannot read {path}: {error.strerror}.") from None
    _, end = _header(data, path)
    return [_stored(line) for _, line in _whole_lines(data, end, path)]


def read_binding(path: Path) -> FileBinding | None:
    """What a file is bound to; None if there is none. Raises StartupError."""
    try:
        with path.open("rb") as file:
            return _header(file.readline(), path)[0]
    except FileNotFoundError:
        return None


def _entry(record: StoredRecord, at: int) -> _Entry:
    kind = slot_of(record)[0]
    if isinstance(record, SnapshotEntry):
        body = msgspec.json.encode(write_message(record.message))
        return _Entry(at, kind, msgspec.Raw(body), "0x" + record.signature.hex())
    if isinstance(record, SignedDown):
        return _Entry(at, kind, msgspec.Raw(encode_outage_message(record)))
    return _Entry(at, kind, msgspec.Raw(encode_message(record)))


def _line(entry: msgspec.Struct) -> bytes:
    body = msgspec.json.encode(entry)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _body(line: bytes) -> bytes | None:
    """None if the line is not whole."""
    checksum, _, body = line.removesuffix(b"\n").partition(b" ")
    is_whole = line.endswith(b"\n") and checksum == b"%08x" % zlib.crc32(body)
    return body if is_whole else None


def _header(data: bytes, path: Path) -> tuple[FileBinding | None, int]:
    """None for a file without anything: it was just made, or torn before its first entry."""
    line = data[: data.find(b"\n") + 1]
    body = _body(line) if line else None
    if body is None:
        if line and len(line) < len(data):
            raise _damaged(path)
        return None, 0
    try:
        return msgspec.json.decode(body, type=FileBinding), len(line)
    except msgspec.MsgspecError:
        raise _damaged(path) from None


def _whole_lines(data: bytes, start: int, path: Path) -> Iterator[tuple[int, bytes]]:
    """Offsets and lines. Stops at a torn last one; raises StartupError for any other."""
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        line = data[start:end]
        if _body(line) is None:
            if end < len(data) or not _is_torn(line):
                raise _damaged(path)
            return
        yield start, line
        start = end


def _is_torn(line: bytes) -> bool:
    """Whether a last line is a write that the disk has in part: its end or blocks of it are missing.

    One that is all there and has another checksum was changed later: it may have been sent.
    """
    return not line.endswith(b"\n") or b"\0" in line


def _stored(line: bytes) -> StoredSignature:
    try:
        entry = msgspec.json.decode(_body(line) or b"", type=_Entry)
        return StoredSignature(entry.at, _record(entry))
    except (msgspec.MsgspecError, InvalidField, KeyError, TypeError, ValueError):
        raise StartupError("The write-ahead file has an entry that this release does not know.") from None


def _record(entry: _Entry) -> StoredRecord:
    if entry.kind in _SNAPSHOT_KINDS:
        message: Any = read_message(_SNAPSHOT_KINDS[entry.kind], msgspec.json.decode(entry.body))
        return SnapshotEntry(message, bytes.fromhex(entry.signature.removeprefix("0x")))
    if entry.kind == _DOWN:
        vote = decode_outage_message(entry.body)
        if not isinstance(vote, SignedDown):
            raise TypeError("no message that a validator signs")
        return vote
    message = decode_message(entry.body)
    if not isinstance(message, SignedCommitList | SignedRevealList | SignedVote):
        raise TypeError("no message that a validator signs")
    return message


def _damaged(path: Path) -> StartupError:
    return StartupError(
        f"{path} is damaged, so nobody can tell what this validator signed. Do not use its vote key again: start with "
        "--new-vote-key, which moves both files away and registers a new key."
    )


def _is_at(path: Path, fd: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


def _write_all(fd: int, data: bytes, *, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count
