"""What an agent writes down about its part of the machine, for the other agents of that machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.reservations import RESERVATIONS_MAX, ReservationState

CARDS_MAX = 1_024
Amount = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Card = Annotated[str, Meta(min_length=1, max_length=64)]
Cards = Annotated[tuple[Card, ...], Meta(max_length=CARDS_MAX)]


class MachineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One bid or lease."""

    order: Annotated[str, Meta(pattern=r"^0x[0-9a-f]{64}\Z")]
    attempt: Amount
    state: ReservationState
    gpus: Amount = 0
    cpu_milli: Amount = 0
    memory_mib: Amount = 0
    disk_mib: Amount = 0
    cards: Cards = ()
    """Those that it has, once it was started."""

    @property
    def capacity(self) -> LeaseCapacity:
        return LeaseCapacity(self.gpus, self.cpu_milli, self.memory_mib, self.disk_mib)


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: who it is, whether it lives, and what it has promised."""

    node: Annotated[str, Meta(pattern=r"^0x[0-9a-f]{40}\Z")]
    """The address of its key."""
    pid: Amount
    started: Annotated[float, Meta(ge=0)]
    """When its process began, in the kernel's count: a pid is used again."""
    pid_space: Amount
    """The namespace in which its pid means something; 0: not known."""
    beat_unix_s: Annotated[float, Meta(ge=0)]
    """When it last wrote."""
    engine: Annotated[str, Meta(max_length=512)] = ""
    """The socket of its container engine: only who uses the same can see its containers."""
    serving: Cards = ()
    """Cards on which its model server sits."""
    entries: Annotated[tuple[MachineEntry, ...], Meta(max_length=2 * RESERVATIONS_MAX)] = ()


def total_of(entries: Iterable[MachineEntry]) -> LeaseCapacity:
    total = LeaseCapacity()
    for entry in entries:
        total = total.more(entry.capacity)
    return total
