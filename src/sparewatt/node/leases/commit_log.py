"""Which attempts this node has committed to, for as long as a second commit could be held against it.

Two different commits in one attempt cost the bid bond. A gateway could provoke them: it says that a bid has lost, waits
until the node has forgotten it, and sends the lookup again. So commits are noted on disk by order and attempt, one file
a day, and forgotten by time alone. Calls block for a disk's flush.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparewatt.machine.data_dir import make_private_dir

DAY_S = 86_400
DAYS_KEPT = 3
"""Evidence counts for a day and an attempt on a public network."""
ENTRY_BYTES = 36
"""An order's id, and the attempt."""
FILE_BYTES_MAX = 16 * 1024 * 1024
"""Five times what a day's bids can fill."""


class CommitLog:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: set[bytes] = set()

    def __contains__(self, key: tuple[bytes, int]) -> bool:
        return _entry(key) in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, *, unix_s: float) -> None:
        """Read what is kept, and remove what is old."""
        oldest = _day(unix_s) - DAYS_KEPT
        for path in sorted(self._folder.glob("*.commits")):
            if path.stem.isdigit() and int(path.stem) < oldest:
                path.unlink(missing_ok=True)
                continue
            with path.open("rb") as file:
                body = file.read(FILE_BYTES_MAX)
            self._entries.update(body[at : at + ENTRY_BYTES] for at in range(0, len(body), ENTRY_BYTES))

    def add(self, key: tuple[bytes, int], *, unix_s: float) -> None:
        """Durable when it returns. Raises OSError: then nothing may be sent."""
        entry = _entry(key)
        if entry in self._entries:
            return
        make_private_dir(self._folder)
        path = self._folder / f"{_day(unix_s)}.commits"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.ftruncate(fd, os.fstat(fd).st_size // ENTRY_BYTES * ENTRY_BYTES)  # an entry torn by a crash
            os.write(fd, entry)
            os.fsync(fd)
        finally:
            os.close(fd)
        self._entries.add(entry)


def _entry(key: tuple[bytes, int]) -> bytes:
    order_id, attempt = key
    return order_id + attempt.to_bytes(4, "big")


def _day(unix_s: float) -> int:
    return int(unix_s // DAY_S)
