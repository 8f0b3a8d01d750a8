"""The line for one model: a band per priority, in each band a lane per account, in each of those a lane per key.

Within a key: first come, first served. Accounts share by tokens (deficit round robin), and an account's keys share what
it gets in the same way: who makes more keys gets no more turns. Bands are served by priority, except that a lower band
with waiting jobs is owed a share of what the others get. Time, chance and capacity are the caller's: this decides who
is next, not when. Every step looks at each lane of a band at most once, and a band has at most `per_band` jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from sparewatt.core.ids import AccountId, KeyId
from sparewatt.inference.admission.model import AdmissionRequest, AdmissionRules, Priority
from sparewatt.inference.admission.rules import LaneShare, ahead_of, next_lane


class Waiter(Protocol):
    """An entry of the line."""

    @property
    def job(self) -> AdmissionRequest: ...


class Lane(Protocol):
    """What is served in rotation. Never empty: a lane without jobs is taken away, and what it had saved with it."""

    deficit: int

    def __len__(self) -> int: ...

    @property
    def next_cost(self) -> int:
        """Tokens of the job that it would give next."""
        ...


W = TypeVar("W", bound=Waiter)
L = TypeVar("L", bound=Lane)
N = TypeVar("N", bound=Hashable)


class LaneRotation(Generic[N, L]):
    """Lanes by name, in the order in which deficit round robin visits them."""

    __slots__ = ("_first_was_given", "_quantum", "lanes")

    def __init__(self, *, quantum: int) -> None:
        self._quantum = quantum
        self._first_was_given = False
        self.lanes: dict[N, L] = {}

    def lane(self, name: N, make: Callable[[], L]) -> L:
        """The lane of this name; a new one comes last."""
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = make()
        return lane

    def length(self, name: N) -> int:
        lane = self.lanes.get(name)
        return len(lane) if lane is not None else 0

    def next_share(self) -> LaneShare:
        """The lane to serve next; nothing changes until `serve`."""
        lanes = self.lanes.values()
        return next_lane(
            [lane.deficit for lane in lanes],
            [lane.next_cost for lane in lanes],
            quantum=self._quantum,
            first_was_given=self._first_was_given,
        )

    def lane_of(self, share: LaneShare) -> L:
        return list(self.lanes.values())[share.lane]

    def serve(self, share: LaneShare) -> tuple[N, L]:
        """Give the lanes their quanta, and charge the one that is served for the job that it is about to give."""
        named = list(self.lanes.items())
        for (_, lane), quanta in zip(named, share.quanta, strict=True):
            lane.deficit += quanta * self._quantum
        self.lanes = dict(named[share.lane :] + named[: share.lane])
        self._first_was_given = True
        name, served = named[share.lane]
        served.deficit -= served.next_cost
        return name, served

    def drop_if_empty(self, name: N) -> None:
        if not len(self.lanes[name]):
            if next(iter(self.lanes)) == name:
                self._first_was_given = False
            del self.lanes[name]

    def longest(self) -> L:
        """The lane with the most in line, the last to join of several."""
        return max(reversed(self.lanes.values()), key=len)

    def ahead_of(self, name: N, ahead_in_lane: int) -> int:
        """How many of these lanes' jobs come before one of this lane's."""
        return ahead_of(ahead_in_lane, [len(lane) for other, lane in self.lanes.items() if other != name])


class KeyLane(Generic[W]):
    """One key's jobs."""

    __slots__ = ("deficit", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[W] = deque()
        self.deficit = 0

    def __len__(self) -> int:
        return len(self.waiters)

    @property
    def next_cost(self) -> int:
        return self.waiters[0].job.cost_tokens


class AccountLane(Generic[W]):
    """One account's jobs: a lane for each of its keys."""

    __slots__ = ("_count", "deficit", "keys")

    def __init__(self, *, quantum: int) -> None:
        self.keys: LaneRotation[KeyId, KeyLane[W]] = LaneRotation(quantum=quantum)
        self._count = 0
        self.deficit = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[W]:
        return (waiter for lane in self.keys.lanes.values() for waiter in lane.waiters)

    @property
    def next_cost(self) -> int:
        return self.keys.lane_of(self.keys.next_share()).next_cost

    def newest(self) -> W:
        """The last to come of the key with the most in line."""
        return self.keys.longest().waiters[-1]

    def join(self, waiter: W) -> None:
        self.keys.lane(waiter.job.key_id, KeyLane).waiters.append(waiter)
        self._count += 1

    def leave(self, waiter: W) -> None:
        self.keys.lanes[waiter.job.key_id].waiters.remove(waiter)
        self._shrunk(waiter.job.key_id)

    def take(self) -> W:
        key_id, lane = self.keys.serve(self.keys.next_share())
        waiter = lane.waiters.popleft()
        self._shrunk(key_id)
        return waiter

    def ahead_if_joined(self, key_id: KeyId) -> int:
        return self.keys.ahead_of(key_id, self.keys.length(key_id))

    def ahead_of(self, waiter: W) -> int:
        key_id = waiter.job.key_id
        return self.keys.ahead_of(key_id, self.keys.lanes[key_id].waiters.index(waiter))

    def _shrunk(self, key_id: KeyId) -> None:
        self._count -= 1
        self.keys.drop_if_empty(key_id)


class PriorityBand(Generic[W]):
    def __init__(self, *, quantum: int) -> None:
        self._quantum = quantum
        self.accounts: LaneRotation[AccountId, AccountLane[W]] = LaneRotation(quantum=quantum)
        self._count = 0
        self.owed = 0.0
        """Tokens of its guaranteed share that it has not had yet."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[W]:
        return (waiter for lane in self.accounts.lanes.values() for waiter in lane)

    def join(self, waiter: W) -> None:
        self.accounts.lane(waiter.job.account_id, lambda: AccountLane(quantum=self._quantum)).join(waiter)
        self._count += 1

    def leave(self, waiter: W) -> None:
        self.accounts.lanes[waiter.job.account_id].leave(waiter)
        self._shrunk(waiter.job.account_id)

    def take(self, share: LaneShare) -> W:
        account_id, lane = self.accounts.serve(share)
        waiter = lane.take()
        self._shrunk(account_id)
        return waiter

    def ahead_if_joined(self, job: AdmissionRequest) -> int:
        lane = self.accounts.lanes.get(job.account_id)
        return self.accounts.ahead_of(job.account_id, lane.ahead_if_joined(job.key_id) if lane is not None else 0)

    def ahead_of(self, waiter: W) -> int:
        account_id = waiter.job.account_id
        return self.accounts.ahead_of(account_id, self.accounts.lanes[account_id].ahead_of(waiter))

    def _shrunk(self, account_id: AccountId) -> None:
        self._count -= 1
        self.accounts.drop_if_empty(account_id)
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

    def account_is_full(self, job: AdmissionRequest) -> bool:
        return self._bands[job.priority].accounts.length(job.account_id) >= self._rules.per_account

    def band_is_full(self, job: AdmissionRequest) -> bool:
        return len(self._bands[job.priority]) >= self._rules.per_band

    def displaced_by(self, job: AdmissionRequest) -> W | None:
        """Who makes room for a job where there is none: the newest of the longest lane, if the job's stays shorter.

        In an account's full share that is the longest of its keys, in a full band the longest of the accounts.
        """
        accounts = self._bands[job.priority].accounts
        if self.account_is_full(job):
            account = accounts.lanes[job.account_id]
            lengths = len(account.keys.longest()), account.keys.length(job.key_id)
        else:
            account = accounts.longest()
            lengths = len(account), accounts.length(job.account_id)
        longest, own = lengths
        return account.newest() if longest > own + 1 else None

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
        return self._above(job.priority) + self._bands[job.priority].ahead_if_joined(job) + 1

    def position_of(self, waiter: W) -> int:
        priority = waiter.job.priority
        return self._above(priority) + self._bands[priority].ahead_of(waiter) + 1

    def _choose(self) -> tuple[Priority, LaneShare, bool]:
        shares = {priority: band.accounts.next_share() for priority, band in self._bands.items() if band}
        for priority in self._rules.guaranteed:
            if priority in shares and self._owes(priority, shares[priority]):
                return priority, shares[priority], True
        first = next(iter(shares))
        return first, shares[first], False

    def _owes(self, priority: Priority, share: LaneShare) -> bool:
        band = self._bands[priority]
        return band.owed >= band.accounts.lane_of(share).next_cost

    def _above(self, priority: Priority) -> int:
        above = 0
        for other, band in self._bands.items():
            if other is priority:
                break
            above += len(band)
        return above
