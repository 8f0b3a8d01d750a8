"""Rate limits of API keys and client addresses: token buckets in memory, one for requests and one for tokens.

A bucket holds a minute's worth and refills continuously, so it allows a burst and stops a flood. Time comes in by
argument. Of HTTP it knows only the rate limit headers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from sparewatt.core.limits import RETRY_AFTER_S_MAX

_MIN_S = 60.0
METERS_MAX = 100_000
"""Keys or addresses that are counted at the same time (about 300 bytes each); the longest idle are dropped first."""


@dataclass(slots=True)
class TokenBucket:
    """Holds at most `capacity`, refills `per_s` a second."""

    capacity: float
    per_s: float
    at_s: float
    level: float

    def take(self, now_s: float, count: int = 1) -> float:
        """Take `count` if there is at least one, and return 0; or else take nothing and return the seconds to wait."""
        if now_s > self.at_s:
            self.level = min(self.capacity, self.level + (now_s - self.at_s) * self.per_s)
            self.at_s = now_s
        if self.level < 1:
            return (1 - self.level) / self.per_s
        self.level -= count
        return 0.0


@dataclass(slots=True, kw_only=True)
class TokenBuckets:
    """A bucket per name, all with the same limits; the longest idle are dropped first.

    `share`: of how many processes this is one. Each takes so many at a time, so that all together admit as much as one
    alone would.
    """

    burst: float
    per_s: float
    share: int = 1
    count_max: int = METERS_MAX
    _by_name: OrderedDict[Hashable, TokenBucket] = field(default_factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._by_name)

    def take(self, name: Hashable, *, now_s: float, count: int = 1) -> float:
        """Take `count` if there is at least one, and return 0; or else take nothing and return the seconds to wait."""
        bucket = self._by_name.get(name)
        if bucket is None:
            self._drop_full(now_s)
            bucket = self._by_name[name] = TokenBucket(self.burst, self.per_s, at_s=now_s, level=self.burst)
            if len(self._by_name) > self.count_max:
                self._by_name.popitem(last=False)
        self._by_name.move_to_end(name)
        return bucket.take(now_s, self.share * count)

    def _drop_full(self, now_s: float) -> None:
        """A bucket that is full again is the same as none. Those that are longest idle are looked at."""
        while self._by_name:
            name, bucket = next(iter(self._by_name.items()))
            if bucket.level + (now_s - bucket.at_s) * bucket.per_s < bucket.capacity:
                return
            del self._by_name[name]

    def give_back(self, name: Hashable) -> None:
        """What was taken last does not count after all."""
        bucket = self._by_name.get(name)
        if bucket is not None:
            bucket.level = min(bucket.capacity, bucket.level + self.share)


class RateMeter:
    """What one key or address has left of its two limits. It may be overdrawn: usage is known only afterwards.

    `share`: of how many processes this is one. Everything is charged that many times, so each process admits its share
    of the limit, at least one request, while the headers show the whole limit.

    Every request uses it, hence plain numbers in slots and comparisons instead of `min`.
    """

    __slots__ = ("at_s", "requests_left", "requests_per_min", "share", "tokens_left", "tokens_per_min")

    def __init__(self, requests_per_min: int, tokens_per_min: int, now_s: float, share: int = 1) -> None:
        self.share = share
        self.requests_per_min = requests_per_min
        self.tokens_per_min = tokens_per_min
        self.requests_left: float = requests_per_min
        self.tokens_left: float = tokens_per_min
        self.at_s = now_s

    def set_limits(self, requests_per_min: int, tokens_per_min: int) -> None:
        """Usage so far still counts."""
        self.requests_left += requests_per_min - self.requests_per_min
        self.tokens_left += tokens_per_min - self.tokens_per_min
        self.requests_per_min = requests_per_min
        self.tokens_per_min = tokens_per_min

    def refill(self, now_s: float) -> None:
        minutes = (now_s - self.at_s) / _MIN_S
        if minutes <= 0:
            return
        self.at_s = now_s
        left = self.requests_left + minutes * self.requests_per_min
        self.requests_left = left if left < self.requests_per_min else self.requests_per_min  # noqa: FURB136 (as above)
        left = self.tokens_left + minutes * self.tokens_per_min
        self.tokens_left = left if left < self.tokens_per_min else self.tokens_per_min  # noqa: FURB136 (as above)

    def allows(self, tokens: int) -> bool:
        """A request with more tokens than the limit passes if nothing is used yet, and overdraws the meter."""
        left = self.tokens_left
        return self.requests_left >= 1 and (left >= tokens * self.share or left >= self.tokens_per_min)

    def wait(self, tokens: int) -> tuple[float, str]:
        """Seconds until a request of so many tokens is allowed, and which limit it waits for."""
        requests_s = max(0.0, 1 - self.requests_left) / self.requests_per_min * _MIN_S
        missing = min(tokens * self.share, self.tokens_per_min) - self.tokens_left
        tokens_s = max(0.0, missing) / self.tokens_per_min * _MIN_S
        return (requests_s, "requests") if requests_s >= tokens_s else (tokens_s, "tokens")

    def charge(self, tokens: int) -> None:
        self.requests_left -= self.share
        self.tokens_left -= tokens * self.share

    def adjust(self, tokens: int) -> None:
        """The request used so many tokens more than were charged at first; fewer if negative."""
        left = self.tokens_left - tokens * self.share
        self.tokens_left = left if left < self.tokens_per_min else self.tokens_per_min  # noqa: FURB136 (as above)

    def header_lines(self, now_s: float) -> str:
        """HTTP header lines, as OpenAI's clients read them; `reset` is the time until the whole limit is free again."""
        self.refill(now_s)
        requests, tokens = self.requests_left, self.tokens_left
        requests_max, tokens_max = self.requests_per_min, self.tokens_per_min
        return (
            f"x-ratelimit-limit-requests: {requests_max}\r\n"
            f"x-ratelimit-limit-tokens: {tokens_max}\r\n"
            f"x-ratelimit-remaining-requests: {int(requests) if requests > 0 else 0}\r\n"
            f"x-ratelimit-remaining-tokens: {int(tokens) if tokens > 0 else 0}\r\n"
            f"x-ratelimit-reset-requests: {(requests_max - requests) / requests_max * _MIN_S:.3f}s\r\n"
            f"x-ratelimit-reset-tokens: {(tokens_max - tokens) / tokens_max * _MIN_S:.3f}s\r\n"
        )


class RateDenial(NamedTuple):
    """Which limit was hit: `who` is "key" or "address", `what` is "requests" or "tokens"."""

    who: str
    what: str
    retry_after_s: float


class RateCharge(NamedTuple):
    """What a request was charged before its usage was known."""

    key: RateMeter
    address: RateMeter
    tokens: int

    def settle(self, used: int) -> None:
        """Correct the charge to the tokens that were used."""
        if used != self.tokens:
            self.key.adjust(used - self.tokens)
            self.address.adjust(used - self.tokens)


@dataclass(slots=True, kw_only=True)
class RateLimiter:
    """The meters of all keys and addresses. A request is charged to both of its meters or to neither."""

    requests_per_min: int
    tokens_per_min: int
    address_requests_per_min: int
    address_tokens_per_min: int
    share: int = 1
    count_max: int = METERS_MAX
    _keys: OrderedDict[str, RateMeter] = field(default_factory=OrderedDict, init=False)
    _addresses: OrderedDict[str, RateMeter] = field(default_factory=OrderedDict, init=False)

    def __len__(self) -> int:
        return len(self._keys) + len(self._addresses)

    def key_meter(
        self, key_id: str, *, now_s: float, requests_per_min: int | None = None, tokens_per_min: int | None = None
    ) -> RateMeter:
        """With the key's own limits, where it has some."""
        requests, tokens = requests_per_min or self.requests_per_min, tokens_per_min or self.tokens_per_min
        return self._meter(self._keys, key_id, requests, tokens, now_s)

    def address_meter(self, address: str, *, now_s: float) -> RateMeter:
        requests, tokens = self.address_requests_per_min, self.address_tokens_per_min
        return self._meter(self._addresses, address, requests, tokens, now_s)

    def admit(self, key: RateMeter, address: RateMeter, *, tokens: int, now_s: float) -> RateDenial | None:
        """Charge one request of `tokens` to both meters. Returns a denial if one does not allow it."""
        key.refill(now_s)
        address.refill(now_s)
        if key.allows(tokens) and address.allows(tokens):
            key.charge(tokens)
            address.charge(tokens)
            return None
        (key_s, key_limit), (address_s, address_limit) = key.wait(tokens), address.wait(tokens)
        if key_s >= address_s:
            return RateDenial("key", key_limit, min(key_s, RETRY_AFTER_S_MAX))
        return RateDenial("address", address_limit, min(address_s, RETRY_AFTER_S_MAX))

    def _meter(
        self, meters: OrderedDict[str, RateMeter], name: str, requests_per_min: int, tokens_per_min: int, now_s: float
    ) -> RateMeter:
        meter = meters.get(name)
        if meter is None:
            meter = meters[name] = RateMeter(requests_per_min, tokens_per_min, now_s, self.share)
            if len(meters) > self.count_max:
                meters.popitem(last=False)
            return meter
        meters.move_to_end(name)
        if meter.requests_per_min != requests_per_min or meter.tokens_per_min != tokens_per_min:
            meter.set_limits(requests_per_min, tokens_per_min)
        return meter
