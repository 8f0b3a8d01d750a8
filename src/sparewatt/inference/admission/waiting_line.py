"""The line for one model: a band per priority, in each band a lane per key, in each lane first come, first served.

Lanes share by tokens (deficit round robin). Bands are served by priority, except that a lower band with waiting jobs is
owed a share of what the others get. Time, chance and capacity are the caller's: this decides who is next, not when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from sparewatt.core.ids import KeyId
from sparewatt.inference.admission.model import AdmissionRequest, AdmissionRules, Priority
from sparewatt.inference.admission.rules import LaneShare, next_lane, position_after


class Waiter(Protocol):
    """An entry of the line."""

    @property
    def job(self) -> AdmissionRequest: ...


W = TypeVar("W", bound=Waiter)


@dataclass(slots=True)
class KeyLane(Generic[W]):
    """One key's jobs. Always holds at least one: an empty lane is taken away, and what it had saved with it."""

    key_id: KeyId
    waiters: deque[W] = field(default_factory=deque)
    deficit: int = 0


class PriorityBand(Generic[W]):
    def __init__(self, *, quantum: int) -> None:
        self._quantum = quantum
        self._lanes: dict[KeyId, KeyLane[W]] = {}
        self._first_was_given = False
        self._count = 0
        self.owed = 0.0
        """Tokens of its guaranteed share that it has not had yet."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[W]:
        return (waiter for lane in self._lanes.values() for waiter in lane.waiters)

    def of_key(self, key_id: KeyId) -> int:
        lane = self._lanes.get(key_id)
        return len(lane.waiters) if lane else 0

    def join(self, waiter: W) -> None:
        key_id = waiter.job.key_id
        lane = self._lanes.get(key_id)
        if lane is None:
            lane = self._lanes[key_id] = KeyLane(key_id)
        lane.waiters.append(waiter)
        self._count += 1

    def leave(self, waiter: W) -> None:
        lane = self._lanes[waiter.job.key_id]
        lane.waiters.remove(waiter)
        self._shrunk(lane)

    def next_share(self) -> LaneShare:
        """The lane to serve next; nothing changes until `take`."""
        lanes = self._lanes.values()
        return next_lane(
            [lane.deficit for lane in lanes],
            [lane.waiters[0].job.cost_tokens for lane in lanes],
            quantum=self._quantum,
            first_was_given=self._first_was_given,
        )

    def at(self, share: LaneShare) -> W:
        return list(self._lanes.values())[share.lane].waiters[0]

    def take(self, share: LaneShare) -> W:
        lanes = list(self._lanes.values())
        for lane, quanta in zip(lanes, share.quanta, strict=True):
            lane.deficit += quanta * self._quantum
        served = lanes[share.lane]
        self._lanes = {lane.key_id: lane for lane in lanes[share.lane :] + lanes[: share.lane]}
        self._first_was_given = True
        waiter = served.waiters.popleft()
        served.deficit -= waiter.job.cost_tokens
        self._shrunk(served)
        return waiter

    def longest(self) -> KeyLane[W]:
        """The key with the most in line, the last to join of several."""
        return max(reversed(self._lanes.values()), key=lambda lane: len(lane.waiters))

    def position_if_joined(self, key_id: KeyId, *, above: int) -> int:
        return self._position(key_id, self.of_key(key_id), above=above)

    def position_of(self, waiter: W, *, above: int) -> int:
        key_id = waiter.job.key_id
        return self._position(key_id, self._lanes[key_id].waiters.index(waiter), above=above)

    def _position(self, key_id: KeyId, ahead: int, *, above: int) -> int:
        others = [len(lane.waiters) for lane in self._lanes.values() if lane.key_id != key_id]
        return position_after(ahead, others, in_bands_above=above)

    def _shrunk(self, lane: KeyLane[W]) -> None:
        self._count -= 1
        if not lane.waiters:
            if next(iter(self._lanes)) == lane.key_id:
                self._first_was_given = False
            del self._lanes[lane.key_id]
        if not self._count:
            self.owed = 0.0


class WaitingLine(Generic[W]):
    def __init__(self, rules: AdmissionRules) -> None:
        self._rules = rules
        self._bands: dict[Priority, PriorityBand[W]] = {
            priority: PriorityBand(quantum=rules.quantum_tokens) for priority in Priority
        }

    def __len__(self) -> int:
        return sum(map(len, self._bands.values()))

    def __iter__(self) -> Iterator[W]:
        return (waiter for band in self._bands.values() for waiter in band)

    @property
    def saturation(self) -> float:
        """The share of all bands that is taken."""
        return len(self) / (self._rules.per_band * len(self._bands))

    def join(self, waiter: W) -> None:
        self._bands[waiter.job.priority].join(waiter)

    def leave(self, waiter: W) -> None:
        self._bands[waiter.job.priority].leave(waiter)

    def key_is_full(self, job: AdmissionRequest) -> bool:
        return self._bands[job.priority].of_key(job.key_id) >= self._rules.per_key

    def band_is_full(self, job: AdmissionRequest) -> bool:
        return len(self._bands[job.priority]) >= self._rules.per_band

    def displaced_by(self, job: AdmissionRequest) -> W | None:
        """For a band that is full: the newest of the longest lane, if the job's own stays shorter even so."""
        band = self._bands[job.priority]
        longest = band.longest()
        return longest.waiters[-1] if len(longest.waiters) > band.of_key(job.key_id) + 1 else None

    def next(self) -> W:
        """Remove and return the next in line, which must not be empty."""
        priority, share, is_owed = self._choose()
        band = self._bands[priority]
        waiter = band.take(share)
        if is_owed and band:
            band.owed -= waiter.job.cost_tokens
        for other, fraction in self._rules.guaranteed.items():
            if other is not priority and self._bands[other]:
                self._bands[other].owed += fraction * waiter.job.cost_tokens
        return waiter

    def position_if_joined(self, job: AdmissionRequest) -> int:
        return self._bands[job.priority].position_if_joined(job.key_id, above=self._above(job.priority))

    def position_of(self, waiter: W) -> int:
        priority = waiter.job.priority
        return self._bands[priority].position_of(waiter, above=self._above(priority))

    def _choose(self) -> tuple[Priority, LaneShare, bool]:
        shares = {priority: band.next_share() for priority, band in self._bands.items() if band}
        for priority in self._rules.guaranteed:
            if priority in shares and self._owes(priority, shares[priority]):
                return priority, shares[priority], True
        first = next(iter(shares))
        return first, shares[first], False

    def _owes(self, priority: Priority, share: LaneShare) -> bool:
        band = self._bands[priority]
        return band.owed >= band.at(share).job.cost_tokens

    def _above(self, priority: Priority) -> int:
        above = 0
        for other, band in self._bands.items():
            if other is priority:
                break
            above += len(band)
        return above
