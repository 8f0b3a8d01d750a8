"""Measured speeds on disk, so that a restart on the same server need not measure again."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sparewatt.core.log import Logger

_log = Logger("sparewatt.node")
SPEED_FILE, GPU_SPEED_FILE = "measured.json", "gpu.json"
_T = TypeVar("_T")


class SpeedFile(Generic[_T]):
    """One JSON object: what was measured, by a key that names what it was measured on."""

    def __init__(self, path: Path, shape: type[_T]) -> None:
        self._path = path
        try:
            self._speeds = msgspec.json.decode(path.read_bytes(), type=dict[str, shape])  # type: ignore[valid-type]
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            self._speeds = dict[str, _T]()

    def get(self, key: str) -> _T | None:
        return self._speeds.get(key)

    def put(self, key: str, speed: _T) -> None:
        """If the disk is full, it is kept in memory only, and measured again after a restart."""
        self._speeds[key] = speed
        try:
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(self._speeds))
            temporary.replace(self._path)
        except OSError as error:
            _log.warning("measure_not_kept", why=str(error))
