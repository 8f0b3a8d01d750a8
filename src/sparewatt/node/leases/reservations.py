"""Which part of the machine is promised to whom: from a bid until its attempt ends, and while the node holds a lease.

Bids are checked and reserved in one step of one thread, so concurrent lookups never sell a GPU twice. Reserving stops
nothing: inference goes on, and only other bids find less. This module knows no files; `bid_store` makes it durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sparewatt.node.leases.capacity import LeaseCapacity

RESERVATIONS_MAX = 64
"""Bids and leases together: as many as a heartbeat names."""

BidKey = tuple[bytes, int]
"""An order and an attempt."""


class ReservationState(StrEnum):
    BIDDING = "bidding"
    HELD = "held"
    """The node holds the lease."""


@dataclass(frozen=True, slots=True)
class LeaseReservation:
    capacity: LeaseCapacity
    state: ReservationState
    term: int = 0
    """Of a lease that is held."""


@dataclass(slots=True)
class Reservations:
    _entries: dict[BidKey, LeaseReservation] = field(default_factory=dict)

    def __contains__(self, key: BidKey) -> bool:
        return key in self._entries

    def get(self, key: BidKey) -> LeaseReservation | None:
        return self._entries.get(key)

    def entries(self) -> dict[BidKey, LeaseReservation]:
        return dict(self._entries)

    def reserved(self) -> LeaseCapacity:
        total = LeaseCapacity()
        for entry in self._entries.values():
            total = total.more(entry.capacity)
        return total

    def taken(self, whole: LeaseCapacity) -> LeaseCapacity:  # noqa: ARG002 (others may share the machine)
        """What of `whole`, the owner's offer, is not free."""
        return self.reserved()

    def reserve(self, key: BidKey, wanted: LeaseCapacity, *, whole: LeaseCapacity) -> bool:
        """For a bid. False if it does not fit beside the others, or there is one for this attempt."""
        has_room = len(self._entries) < RESERVATIONS_MAX and whole.less(self.reserved()).covers(wanted)
        if key in self._entries or not has_room:
            return False
        self._entries[key] = LeaseReservation(wanted, ReservationState.BIDDING)
        return True

    def restore(self, key: BidKey, capacity: LeaseCapacity, *, state: ReservationState, term: int) -> None:
        """What was promised before a restart counts, whatever the owner offers meanwhile."""
        self._entries[key] = LeaseReservation(capacity, state, term)

    def hold(self, key: BidKey, capacity: LeaseCapacity, *, term: int) -> None:
        """The lease is this node's, also if its reservation had been freed: then new bids find less."""
        self._entries[key] = LeaseReservation(capacity, ReservationState.HELD, term)

    def free(self, key: BidKey) -> bool:
        """False if there was none."""
        return self._entries.pop(key, None) is not None
