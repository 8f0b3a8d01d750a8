"""Records of matches and tables of epochs on disk, one JSON file each, bounded in number and size.

A record is written before the validator's vote leaves, since every signer must be able to publish the book until the
time for evidence is over. Files that are older may stay as long as there is room: people replay old matches.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.protocol.signing import keccak256

_log = Logger("sparewatt.validator")
RECORDS_MAX = 20_000
RECORDS_BYTES_MAX = 1024 * MIB
_NAME = re.compile(r"(0x[0-9a-f]{64})-([0-9]{1,10})\.json")
_EPOCH_NAME = re.compile(r"([0-9]{1,10})-[0-9a-f]{16}\.json")
NAME_DIGITS = 16
EPOCHS_MAX = 256
"""Newest epochs whose books are kept: an order uses the epoch of its opening."""
BOOKS_PER_EPOCH = 8


@dataclass(slots=True)
class _Kept:
    size: int
    kept_until: int
    """Chain time up to which it must not be dropped; 0 if it is not known (it was there at start)."""


@dataclass(slots=True)
class RecordFiles:
    folder: Path
    _kept: dict[tuple[str, int], _Kept] = field(default_factory=dict, init=False)
    """By order and attempt, oldest first."""
    _bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        make_private_dir(self.folder)
        for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.stat().st_mtime):
            match = _NAME.fullmatch(entry.name)
            if match is not None:
                self._note((match[1], int(match[2])), _Kept(entry.stat().st_size, 0))

    def __len__(self) -> int:
        return len(self._kept)

    def save(self, order_id: str, attempt: int, body: bytes, *, kept_until: int, now: int) -> None:
        """Replace the record of an attempt. Raises OSError."""
        write_private(self._path(order_id, attempt), body)
        self._forget((order_id, attempt))
        self._note((order_id, attempt), _Kept(len(body), kept_until))
        self._prune(now)

    def read(self, order_id: str, attempt: int) -> bytes | None:
        if (order_id, attempt) not in self._kept:
            return None
        try:
            return self._path(order_id, attempt).read_bytes()
        except OSError as error:
            _log.warning("record_not_read", order_id=order_id, why=error.strerror)
            return None

    def attempts_of(self, order_id: str) -> list[int]:
        return sorted(attempt for known, attempt in self._kept if known == order_id)

    def _prune(self, now: int) -> None:
        """Drop the oldest that need not be kept, until the rest is within bounds."""
        for key, kept in list(self._kept.items()):
            if len(self._kept) <= RECORDS_MAX and self._bytes <= RECORDS_BYTES_MAX:
                return
            if kept.kept_until < now:
                self._path(*key).unlink(missing_ok=True)
                self._forget(key)

    def _note(self, key: tuple[str, int], kept: _Kept) -> None:
        self._kept[key] = kept
        self._bytes += kept.size

    def _forget(self, key: tuple[str, int]) -> None:
        kept = self._kept.pop(key, None)
        self._bytes -= kept.size if kept else 0

    def _path(self, order_id: str, attempt: int) -> Path:
        return record_file(self.folder, order_id, attempt)


def record_file(folder: Path, order_id: str, attempt: int) -> Path:
    return folder / f"{order_id}-{attempt}.json"


def recorded_attempts(folder: Path, order_id: str) -> list[int]:
    """Of an order, from the names of the files: also while no validator runs."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob(f"{order_id}-*.json"))
    return sorted(int(name[2]) for name in names if name is not None)


@dataclass(slots=True)
class BookFiles:
    """Books of epochs: a table and what it was made of. An epoch may have several that were voted for."""

    folder: Path
    _names: dict[int, list[str]] = field(default_factory=dict, init=False)
    """By epoch."""

    def __post_init__(self) -> None:
        make_private_dir(self.folder)
        for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.stat().st_mtime):
            match = _EPOCH_NAME.fullmatch(entry.name)
            if match:
                self._names.setdefault(int(match[1]), []).append(entry.name)

    def save(self, epoch: int, body: bytes) -> None:
        """Raises OSError."""
        name = f"{epoch}-{keccak256(body).hex()[:NAME_DIGITS]}.json"
        names = self._names.setdefault(epoch, [])
        if name in names:
            return
        write_private(self.folder / name, body)
        names.append(name)
        self._drop(names[:-BOOKS_PER_EPOCH])
        del names[:-BOOKS_PER_EPOCH]
        for old in sorted(self._names)[:-EPOCHS_MAX]:
            self._drop(self._names.pop(old))

    def read(self, epoch: int) -> list[bytes]:
        """Newest first."""
        found = []
        for name in reversed(self._names.get(epoch, ())):
            with contextlib.suppress(OSError):
                found.append((self.folder / name).read_bytes())
        return found

    def newest_epochs(self, count: int) -> list[int]:
        return sorted(self._names)[-count:]

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
