"""Tasks on disk, one file per lease: after a restart the node knows what it holds before any gateway has spoken.

Secrets are in them sealed, as they came. Calls block for a disk's flush: the caller runs them in a thread.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sparewatt.core.log import Logger
from sparewatt.machine.data_dir import make_private_dir, write_private
from sparewatt.node.leases.reservations import RESERVATIONS_MAX
from sparewatt.protocol.link.lease_frames import MarketFacts
from sparewatt.protocol.link.lease_tasks import LeaseTask

_log = Logger("sparewatt.node")
FOLDER = "leases/placed"
FILE_BYTES_MAX = 1024 * 1024


class StoredLease(msgspec.Struct, frozen=True, kw_only=True):
    task: LeaseTask
    facts: MarketFacts
    """Of the chain that it is on."""
    gpu_ids: tuple[str, ...] = ()
    """The cards that it has."""


class LeaseFiles:
    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER

    def read_all(self) -> list[StoredLease]:
        """What cannot be read is left where it is, and named in the log."""
        found = []
        for path in sorted(self._folder.glob("*.json"))[:RESERVATIONS_MAX]:
            try:
                with path.open("rb") as file:
                    found.append(msgspec.json.decode(file.read(FILE_BYTES_MAX), type=StoredLease))
            except (OSError, ValueError, RecursionError) as error:
                _log.warning("lease_not_read", file=path.name, why=type(error).__name__)
        return found

    def write(self, lease: StoredLease) -> None:
        """Raises OSError or StartupError."""
        make_private_dir(self._folder)
        write_private(self._path(lease.task.order_id), msgspec.json.encode(lease))

    def remove(self, order_id: str) -> None:
        self._path(order_id).unlink(missing_ok=True)

    def _path(self, order_id: str) -> Path:
        return self._folder / f"{order_id.removeprefix('0x')}.json"
