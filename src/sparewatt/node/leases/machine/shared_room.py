"""The part of the machine that a lease has, by the account of all its agents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.machine_account import MachineAccount
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.node.leases.reservations import BidKey


@dataclass(slots=True, kw_only=True)
class SharedRoom:
    """Implements MachineRoom."""

    account: MachineAccount
    whole: Callable[[], LeaseCapacity]
    """What the owner offers."""
    cards: Callable[[], Sequence[str]]
    """Those that may be leased, the best first."""
    make_free: Callable[[tuple[str, ...]], Awaitable[None]]
    """Ends this agent's other work on what is leased. Raises NoRoom if something else sits on a card."""

    def has_room(self, key: BidKey, capacity: LeaseCapacity) -> bool:
        if key in self.account:
            return True
        whole = self.whole()
        return whole.less(self.account.taken(whole)).covers(capacity)

    def keep(self, key: BidKey, capacity: LeaseCapacity) -> None:
        if key not in self.account and not self.account.reserve(key, capacity, whole=self.whole()):
            raise NoRoom("other leases of this machine have what it needs")

    async def take(self, key: BidKey, capacity: LeaseCapacity, *, term: int) -> tuple[str, ...]:
        self.account.take(key, capacity, term=term, cards=self.cards(), whole=self.whole())
        cards = self.account.cards[key]
        await self.make_free(cards)
        return cards

    async def give_back(self, key: BidKey) -> None:
        self.account.free(key)

    def restore(self, key: BidKey, capacity: LeaseCapacity, *, term: int, gpu_ids: tuple[str, ...]) -> None:
        self.account.cards[key] = gpu_ids
        self.account.hold(key, capacity, term=term)
