"""Pauses a container that fills its disk, where no file system enforces a limit. It looks more often near the limit.

A paused program loses nothing. It may be unpaused to delete files: then it is paused again once it has written a little
more than it had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from sparewatt.core.limits import MIB
from sparewatt.core.log import Logger

_log = Logger("sparewatt.node")
WRITE_BYTES_PER_S = 512 * MIB
"""How fast a program may fill a disk: what is left of its share, divided by this, is how long nobody need look."""
LOOK_S_MIN, LOOK_S_MAX = 0.5, 15.0
ROOM_BYTES = 64 * MIB
"""More than it had when it was paused: what an unpaused program may write before it is paused again."""


def look_again_s(used_bytes: int, limit_bytes: int) -> float:
    return min(LOOK_S_MAX, max(LOOK_S_MIN, (limit_bytes - used_bytes) / WRITE_BYTES_PER_S))


@dataclass(slots=True)
class _WatchedDisk:
    limit_bytes: int
    look_at_s: float = 0.0
    room_until_bytes: int = 0
    """It was paused, and unpaused by somebody: above this it is paused again."""
    is_full: bool = False


@dataclass(slots=True, kw_only=True)
class DiskWatch:
    """Told of containers by name. Knows no engine: measuring and pausing come in by argument."""

    used_bytes: Callable[[str], Awaitable[int]]
    pause: Callable[[str], Awaitable[None]]
    _disks: dict[str, _WatchedDisk] = field(init=False, default_factory=dict)

    def watch(self, name: str, limit_bytes: int) -> None:
        self._disks.setdefault(name, _WatchedDisk(limit_bytes)).limit_bytes = limit_bytes

    def forget(self, name: str) -> None:
        self._disks.pop(name, None)

    def is_full(self, name: str) -> bool:
        return name in self._disks and self._disks[name].is_full

    def unpaused(self, name: str) -> None:
        if (disk := self._disks.get(name)) is not None:
            disk.is_full, disk.look_at_s = False, 0.0

    async def look(self, name: str, *, now_s: float) -> None:
        """At a running container, if it is time. Raises what measuring and pausing do."""
        disk = self._disks.get(name)
        if disk is None or disk.is_full or now_s < disk.look_at_s:
            return
        used = await self.used_bytes(name)
        disk.look_at_s = now_s + look_again_s(used, disk.limit_bytes)
        if used < disk.limit_bytes:
            disk.room_until_bytes = 0
        elif used >= disk.room_until_bytes:
            await self.pause(name)
            disk.is_full, disk.room_until_bytes = True, used + ROOM_BYTES
            _log.warning("lease_disk_full", container=name, used_bytes=used, limit_bytes=disk.limit_bytes)
