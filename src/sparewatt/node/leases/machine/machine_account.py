"""The account of one machine: this agent's reservations beside those of all others, under one lock.

Every change is written down for the others before it counts for anyone: a bid is made only if it fits beside all that
the machine has promised. What an agent has promised it also keeps in its own data directory, so the shared folder may
vanish: each agent writes its part again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sparewatt.core.clock import Clock, sleep_until
from sparewatt.node.leases.capacity import UINT16_MAX, LeaseCapacity
from sparewatt.node.leases.machine.folder import MachineAccountError, MachineFolder
from sparewatt.node.leases.machine.liveness import LAPSE_S, own_start, pid_space, process_lives
from sparewatt.node.leases.machine.records import AgentRecord, MachineEntry, total_of
from sparewatt.node.leases.placed.machine_room import NoRoom
from sparewatt.node.leases.reservations import BidKey, Reservations, ReservationState
from sparewatt.node.leases.runtime.model import LeaseContainer

LOOK_S = 1.0
"""How soon an agent sees what others have promised or freed; for a bid it looks at once."""
BEAT_S = 10.0
"""Between two signs of life."""


@dataclass(slots=True, kw_only=True, eq=False)
class MachineAccount(Reservations):
    """Reservations of which the machine's other agents know, and that leave them what they have."""

    folder: MachineFolder
    node: str
    """The address of this agent's key."""
    clock: Clock
    notify: Callable[[str], None]
    machine: Callable[[], LeaseCapacity]
    """What leases may have of the whole machine, whoever serves them."""
    is_offering: Callable[[], bool]
    engine: str = ""
    serving: Callable[[], tuple[str, ...]] = tuple
    """Cards on which this agent's model server sits."""
    leasable_gpus: Callable[[], int] = lambda: UINT16_MAX
    """Cards on which nothing sits that this agent could not stop, with those that its leases have."""
    on_change: Callable[[], None] = lambda: None
    """A lease is held, or is no longer."""
    lives: Callable[[int, float], bool] = process_lives
    trouble: str | None = field(init=False, default=None)
    """Why leases are not offered."""
    cards: dict[BidKey, tuple[str, ...]] = field(init=False, default_factory=dict)
    _others: tuple[AgentRecord, ...] = field(init=False, default=())
    _gone: set[tuple[str, str]] = field(init=False, default_factory=set)
    """Node and order of leases whose agent is dead and of which no container is left."""
    _written: AgentRecord | None = field(init=False, default=None)
    _process: tuple[int, float, int] = field(init=False)

    def __post_init__(self) -> None:
        self._process = (os.getpid(), own_start(), pid_space())

    # what bids and leases change

    def reserve(self, key: BidKey, wanted: LeaseCapacity, *, whole: LeaseCapacity) -> bool:
        """For a bid: False also if the machine's others have it, or the account cannot be used."""
        is_reserved = False
        try:
            with self.folder.locked():
                self._read()
                is_reserved = Reservations.reserve(self, key, wanted, whole=self._open_to_us(whole))
                if is_reserved:
                    self._write()
        except MachineAccountError as error:
            self._note(error)
            if is_reserved:
                Reservations.free(self, key)
            return False
        return is_reserved

    def restore(self, key: BidKey, capacity: LeaseCapacity, *, state: ReservationState, term: int) -> None:
        Reservations.restore(self, key, capacity, state=state, term=term)
        self._changed()

    def hold(self, key: BidKey, capacity: LeaseCapacity, *, term: int) -> None:
        Reservations.hold(self, key, capacity, term=term)
        self._changed()

    def free(self, key: BidKey) -> bool:
        self.cards.pop(key, None)
        was_there = Reservations.free(self, key)
        if was_there:
            self._changed()
        return was_there

    def take(
        self, key: BidKey, capacity: LeaseCapacity, *, term: int, cards: Iterable[str], whole: LeaseCapacity
    ) -> None:
        """Hold it, with cards of its own from among `cards`. Raises NoRoom."""
        try:
            with self.folder.locked():
                self._read()
                if key not in self and not self._open_to_us(whole).less(self.reserved()).covers(capacity):
                    raise NoRoom("other leases of this machine have what it needs")
                if key not in self.cards:
                    self.cards[key] = self._free_cards(capacity.gpus, cards)
                Reservations.hold(self, key, capacity, term=term)
                self._write()
        except MachineAccountError as error:
            self._note(error)
            if key not in self.cards and (capacity.gpus or key not in self):
                raise NoRoom(error.message) from None
            self.cards.setdefault(key, ())  # promised while the account could be used
            Reservations.hold(self, key, capacity, term=term)
        self.on_change()

    def _free_cards(self, wanted: int, cards: Iterable[str]) -> tuple[str, ...]:
        taken = {card for entry in self.entries_of_others() for card in entry.cards}
        taken.update(card for own in self.cards.values() for card in own)
        free = [card for card in cards if card not in taken]
        if len(free) < wanted:
            raise NoRoom(f"{wanted} GPUs are needed and {len(free)} are free")
        return tuple(free[:wanted])

    # what is left

    def taken(self, whole: LeaseCapacity) -> LeaseCapacity:
        """What of `whole`, the owner's offer, this agent's bids and leases have, or the machine's other agents."""
        if self.trouble is not None:
            return whole
        return whole.less(self._open_to_us(whole)).more(self.reserved())

    def entries_of_others(self) -> list[MachineEntry]:
        """What the machine's other agents have promised, as far as it still counts."""
        return [entry for record in self._others for entry in record.entries if self._counts(record, entry)]

    def _open_to_us(self, whole: LeaseCapacity) -> LeaseCapacity:
        """What this agent's bids and leases may have together."""
        most = LeaseCapacity(*map(max, self.machine(), whole))
        left = most.less(total_of(self.entries_of_others()))
        return LeaseCapacity(*map(min, whole, left._replace(gpus=min(left.gpus, self.leasable_gpus()))))

    def cards_served_by_others(self) -> set[str]:
        return {card for record in self._others for card in record.serving if self._is_alive(record)}

    def _counts(self, record: AgentRecord, entry: MachineEntry) -> bool:
        """A bid lapses with its agent. A lease runs in a container, and counts until somebody saw that it is gone."""
        if entry.state is ReservationState.HELD:
            return (record.node, entry.order) not in self._gone
        return self._is_alive(record)

    def _is_alive(self, record: AgentRecord) -> bool:
        """Or was, a moment ago: a restarted agent finds its bids as they were. A sign from the future is none."""
        if abs(self.clock.unix_s() - record.beat_unix_s) <= LAPSE_S:
            return True
        is_known = record.pid_space == self._process[2]
        return is_known and self.lives(record.pid, record.started)

    # leases of agents that are no more

    def has_orphans(self) -> bool:
        """Whether a lease counts whose agent is dead, and whose containers this agent could see."""
        return any(self._orphans(record) for record in self._others)

    def note_containers(self, containers: Iterable[LeaseContainer]) -> None:
        """What the engine has: a dead agent's lease without a container there is over."""
        there = {(each.label.node, each.label.lease_id) for each in containers}
        for record in self._others:
            self._gone.update(
                (record.node, entry.order) for entry in self._orphans(record) if (record.node, entry.order) not in there
            )
        self.look()

    def _orphans(self, record: AgentRecord) -> list[MachineEntry]:
        if not self.engine or record.engine != self.engine or self._is_alive(record):
            return []
        return [
            entry for entry in record.entries if entry.state is ReservationState.HELD and self._counts(record, entry)
        ]

    # the shared folder

    async def run(self) -> None:
        while True:
            self.look()
            await sleep_until(self.clock, self.clock.now_s() + LOOK_S)

    def look(self) -> None:
        """Read what others have promised; write our own part if it changed, is missing, or as a sign of life."""
        if not self._is_part_of_it():
            self._leave()
            return
        try:
            with self.folder.locked():
                self._read()
                self._write_if_due()
        except MachineAccountError as error:
            self._note(error)
        else:
            self._note(None)

    def _is_part_of_it(self) -> bool:
        return self.is_offering() or bool(self._entries)

    def _leave(self) -> None:
        """A node that neither offers nor has a lease leaves no trace."""
        if self._written is not None:
            self.folder.remove(self.node)
        self._written, self._others = None, ()
        self._note(None)

    def _changed(self) -> None:
        self.look()
        self.on_change()

    def _read(self) -> None:
        self._others = tuple(self.folder.read_others(self.node))
        dead = [record for record in self._others if not self._is_alive(record)]
        self._gone &= {(record.node, entry.order) for record in dead for entry in record.entries}
        for record in dead:
            if not any(self._counts(record, entry) for entry in record.entries):
                self.folder.remove(record.node)

    def _write_if_due(self) -> None:
        record, before = self._record(), self._written
        is_fresh = before is not None and record.beat_unix_s - before.beat_unix_s < BEAT_S
        is_same = before is not None and msgspec.structs.replace(record, beat_unix_s=before.beat_unix_s) == before
        if not is_fresh or not is_same or not self.folder.has(self.node):
            self._write()

    def _write(self) -> None:
        record = self._record()
        self.folder.write(record)
        self._written = record

    def _record(self) -> AgentRecord:
        pid, started, space = self._process
        return AgentRecord(
            node=self.node,
            pid=pid,
            started=started,
            pid_space=space,
            beat_unix_s=self.clock.unix_s(),
            engine=self.engine,
            serving=self.serving(),
            entries=tuple(self.own_entries()),
        )

    def own_entries(self) -> list[MachineEntry]:
        return [
            MachineEntry(
                order="0x" + key[0].hex(),
                attempt=key[1],
                state=entry.state,
                cards=self.cards.get(key, ()),
                **entry.capacity._asdict(),
            )
            for key, entry in self._entries.items()
        ]

    def _note(self, error: MachineAccountError | None) -> None:
        text = error.message if error is not None else None
        if text == self.trouble:
            return
        self.trouble = text
        self.notify(f"no leases are offered: {text}" if text else "the account of this machine can be used again")

    def status(self) -> dict[str, Any]:
        """What leases have of the machine, ready for JSON."""
        own = {self.node: self.own_entries()}
        others = {
            record.node: [entry for entry in record.entries if self._counts(record, entry)] for record in self._others
        }
        return {
            "folder": str(self.folder.path),
            "trouble": self.trouble,
            "leasable": self.machine()._asdict(),
            "taken": [
                {"node": node, "is_own": node == self.node} | msgspec.to_builtins(entry)
                for node, entries in (own | others).items()
                for entry in entries
            ],
        }
