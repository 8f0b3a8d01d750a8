"""Which part of the machine a lease has: its share of processors, memory and disk, and its cards by number."""

from __future__ import annotations

from typing import Protocol

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.reservations import BidKey


class NoRoom(Exception):
    """The machine has not what the lease was promised. Its text says what is missing."""


class MachineRoom(Protocol):
    """What a lease needs of the machine's account. Methods are idempotent by the lease's key."""

    def has_room(self, key: BidKey, capacity: LeaseCapacity) -> bool: ...

    def keep(self, key: BidKey, capacity: LeaseCapacity) -> None:
        """Reserve it for a lease that may become this node's: other work goes on. Raises NoRoom."""
        ...

    async def take(self, key: BidKey, capacity: LeaseCapacity, *, term: int) -> tuple[str, ...]:
        """Hold it, and make it free of other work. The ids of its cards. Raises NoRoom."""
        ...

    async def give_back(self, key: BidKey) -> None: ...

    def restore(self, key: BidKey, capacity: LeaseCapacity, *, term: int, gpu_ids: tuple[str, ...]) -> None:
        """After a restart: what was held counts, before anything else is promised."""
