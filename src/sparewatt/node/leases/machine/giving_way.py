"""Inference gives way to a lease that needs what it works with, and comes back afterwards.

New jobs stop at once. Running answers are broken off a moment later, when every gateway process can know of the lease,
and other nodes go on with them. Then whatever sits on the lease's cards is stopped. Where there is no GPU, inference
gives way to leases that have all the processors this node offers; its server stays, and has nothing to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.core.log import Logger
from sparewatt.node.leases.capacity import LeaseCapacity
from sparewatt.node.leases.machine.records import MachineEntry
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.node.leases.reservations import ReservationState

_log = Logger("sparewatt.node")
KNOWN_AFTER_S = 1.0
"""Every process of a gateway hears of a new block at once."""
RETRY_S_MIN, RETRY_S_MAX = 5.0, 300.0
"""Between two tries to bring the model server back, twice as long each time."""
FREED_WITHIN_S = 20.0
LOOK_S = 0.25


class Inference(Protocol):
    """What gives way: the node's jobs and its picture of the model server."""

    def stop_taking(self, order_id: str) -> None: ...

    def break_off(self, order_id: str) -> int:
        """Returns how many answers there were."""
        ...

    def take_again(self) -> None:
        """Measure, and take jobs."""
        ...


class CardUser(Protocol):
    """What sits on the cards: a model server of the agent's own, or one that the owner's commands stop and start."""

    async def leave(self) -> None:
        """Idempotent. Raises NoRoom."""
        ...

    async def come_back(self) -> None:
        """Idempotent. Raises NoRoom."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """What the model server works with."""

    is_local: bool
    """Whether it runs on this machine."""
    cards: frozenset[str]
    """All that the machine has."""
    used: frozenset[str]
    """Those that it was seen on."""


def lease_in_the_way(entries: Iterable[MachineEntry], place: ServerPlace, *, offered: LeaseCapacity) -> str | None:
    """The order of a lease of this node that has what its inference works with.

    That is a card which the server sits on, or the last one; without cards, all processors that this node offers.
    """
    held = [entry for entry in entries if entry.state is ReservationState.HELD]
    if not place.is_local or not held:
        return None
    if place.cards:
        leased = {card for entry in held for card in entry.cards}
        needed = place.used | (place.cards if leased >= place.cards else frozenset())
        return next((entry.order for entry in held if needed & set(entry.cards)), None)
    processors = sum(entry.cpu_milli for entry in held)
    is_all = 0 < offered.cpu_milli <= processors
    return max(held, key=lambda entry: entry.cpu_milli).order if is_all else None


@dataclass(slots=True, kw_only=True, eq=False)
class GivingWay:
    inference: Inference
    needed_by: Callable[[], str | None]
    """The lease that is in the way now."""
    used_cards: Callable[[], frozenset[str]]
    """On which something sits, as just read."""
    clock: Clock
    notify: Callable[[str], None]
    card_user: Callable[[], CardUser | None] = lambda: None
    """None: this agent can stop nothing that sits on a card."""
    order_id: str | None = field(init=False, default=None)
    """The lease to which inference has given way."""
    _is_handed_over: bool = field(init=False, default=False)
    _retry_s: float = field(init=False, default=RETRY_S_MIN)
    _changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def check(self) -> None:
        """At once, whenever a lease begins or ends: new jobs stop here."""
        order_id = self.needed_by()
        if order_id is not None and self.order_id is None:
            self.order_id = order_id
            self.inference.stop_taking(order_id)
            self.notify(f"the lease {order_id[:10]}… has this node's machine: inference gives way to it")
        if (order_id is None) is not (self.order_id is None) or (order_id is not None and not self._is_handed_over):
            self._changed.set()

    async def run(self) -> None:
        self._changed.set()  # what was stopped before a restart comes back, too
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self.needed_by() is not None:
                await self._hand_over()
            elif not await self._come_back():
                self.clock.call_later(self._retry_s, self._changed.set)
                self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)

    async def make_free(self, cards: tuple[str, ...]) -> None:
        """Before a lease starts. Raises NoRoom if something still sits on one of its cards."""
        self.check()
        if self.order_id is not None:
            await self._hand_over()
        if not cards:
            return
        user = self.card_user()
        if user is not None and self.used_cards() & set(cards):
            await user.leave()
        await self._wait_until_free(cards)

    async def _hand_over(self) -> None:
        async with self._turn:
            order_id = self.order_id
            if order_id is None or self._is_handed_over:
                return
            await sleep_until(self.clock, self.clock.now_s() + KNOWN_AFTER_S)
            broken = self.inference.break_off(order_id)
            self._is_handed_over = True
            if broken:
                _log.info("answers_handed_over", count=broken, order=order_id)

    async def _come_back(self) -> bool:
        async with self._turn:
            if self.needed_by() is not None:
                return True
            try:
                if (user := self.card_user()) is not None:
                    await user.come_back()
            except NoRoom as error:
                self.notify(f"inference cannot come back after a lease: {error}; trying again")
                return False
            self._retry_s = RETRY_S_MIN
            if self.order_id is not None:
                self.order_id, self._is_handed_over = None, False
                self.inference.take_again()
                self.notify("the lease is over: this node measures and serves again")
            return True

    async def _wait_until_free(self, cards: tuple[str, ...]) -> None:
        deadline_s = self.clock.now_s() + FREED_WITHIN_S
        while occupied := self.used_cards() & set(cards):
            if self.clock.now_s() >= deadline_s:
                raise NoRoom(f"something else still sits on the GPU {', '.join(sorted(occupied))}")
            await sleep_until(self.clock, self.clock.now_s() + LOOK_S)
