"""Which sockets may be in the handshake at once, and which of them has to go when the places are full. Pure.

A share of the places per address and per account, but only when they are scarce: many nodes behind one router are
fine as long as there is room. Whoever holds the most gives one up, first a socket that never said a word, and of those
the oldest. An address from which a node has joined holds its first places for free: its nodes come back first.
"""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

PLACES_MAX = 200
"""Sockets at once that have not joined yet: each costs some 20 kB, and a handshake takes a few round trips."""
KNOWN_PLACES = 10
"""Of an address from which a node has joined, so many do not count as its share."""
ADDRESSES_REMEMBERED_MAX = 10_000


class HandshakeStage(enum.IntEnum):
    """The earlier the stage, the sooner a socket has to go."""

    SILENT = 0
    """It has not said a word."""
    STRANGER = 1
    """It says to be a node that is not registered here."""
    KNOWN = 2
    """It says to be a registered node: a claim, until it has signed."""
    PROVEN = 3
    """It has signed; the gateway looks up whether it may join."""


@dataclass(slots=True, eq=False)
class HandshakePlace:
    address: str
    since_s: float
    """When it was heard last: at first, when it came."""
    evict: Callable[[], None]
    """Ends it, to make room for another."""
    stage: HandshakeStage = HandshakeStage.SILENT
    account: str | None = None
    """Whose it is, once that is proven."""


@dataclass(slots=True)
class HandshakePlaces:
    size: int = PLACES_MAX
    _taken: dict[HandshakePlace, None] = field(init=False, default_factory=dict)
    _by_address: Counter[str] = field(init=False, default_factory=Counter)
    _by_account: Counter[str] = field(init=False, default_factory=Counter)
    _joined_from: OrderedDict[str, None] = field(init=False, default_factory=OrderedDict)
    """Addresses from which nodes have joined, the latest last."""

    def __len__(self) -> int:
        return len(self._taken)

    def enter(self, address: str, *, now_s: float, evict: Callable[[], None]) -> HandshakePlace | None:
        """A place, for which another may be evicted. None if all are taken by those who are nearly in."""
        newcomer = HandshakePlace(address, now_s, evict)
        self._by_address[address] += 1
        victim = min(self._taken, key=self._turn) if len(self._taken) >= self.size else None
        if victim is not None:
            if victim.stage is HandshakeStage.PROVEN and self._weight(victim) <= self._weight(newcomer):
                _decrement(self._by_address, address)
                return None
            self.leave(victim)
            victim.evict()
        self._taken[newcomer] = None
        return newcomer

    def hear(self, place: HandshakePlace, *, is_known: bool, now_s: float) -> None:
        """Its first message has come. `is_known`: whether the node that it says to be is registered."""
        place.stage = HandshakeStage.KNOWN if is_known else HandshakeStage.STRANGER
        place.since_s = now_s

    def prove(self, place: HandshakePlace, *, account: str | None, now_s: float) -> None:
        """It has signed as a node. `account`: whose that is, unless it is new."""
        place.stage, place.since_s = HandshakeStage.PROVEN, now_s
        if account is not None and place in self._taken:
            place.account = account
            self._by_account[account] += 1

    def leave(self, place: HandshakePlace) -> None:
        """It is in, or gone. Does nothing for one that was evicted before."""
        if place not in self._taken:
            return
        del self._taken[place]
        _decrement(self._by_address, place.address)
        if place.account is not None:
            _decrement(self._by_account, place.account)

    def note_joined(self, address: str) -> None:
        """A node has joined from there."""
        self._joined_from[address] = None
        self._joined_from.move_to_end(address)
        if len(self._joined_from) > ADDRESSES_REMEMBERED_MAX:
            self._joined_from.popitem(last=False)

    def _turn(self, place: HandshakePlace) -> tuple[int, HandshakeStage, float]:
        """Lowest goes first."""
        return -self._weight(place), place.stage, place.since_s

    def _weight(self, place: HandshakePlace) -> int:
        """How many places its address or its account holds, whichever is more."""
        held = self._by_address[place.address]
        if place.address in self._joined_from:
            held = max(0, held - KNOWN_PLACES)
        return max(held, self._by_account[place.account]) if place.account is not None else held


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
