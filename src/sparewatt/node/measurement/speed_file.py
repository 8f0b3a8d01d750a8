"""What was measured, kept on disk, so that a restart on the same server need not measure again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sparewatt.core.log import Logger
from sparewatt.protocol.link.node_report import Speed

_log = Logger("sparewatt.node")
SPEED_FILE = "measured.json"


class SpeedFile:
    """Speeds by model and server, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._speeds = self._read()

    def _read(self) -> dict[str, Speed]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Speed])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def get(self, key: str) -> Speed | None:
        return self._speeds.get(key)

    def put(self, key: str, speed: Speed) -> None:
        """Keep it, on disk too if that can be: a full disk only means that it is measured again after a restart."""
        self._speeds[key] = speed
        try:
            self._write()
        except OSError as error:
            _log.warning("measure_not_kept", why=str(error))

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(self._speeds))
        temporary.replace(self._path)
