"""How fast a key, or an address, may ask: token buckets in memory, one for requests and one for tokens.

A bucket holds a minute's worth and refills all the time, so a burst is fine and a flood is not. Time comes in by
argument. Nothing here knows HTTP, beyond what the names of its numbers are called in headers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from sparewatt.core.limits import RATE_METERS_MAX, RETRY_AFTER_S_MAX

_MIN_S = 60.0


class Bucket:
    """Holds at most `capacity`, refills `per_s` a second. May be overdrawn: what was used was used."""

    __slots__ = ("at_s", "capacity", "level", "per_s")

    def __init__(self, capacity: float, per_s: float, now_s: float) -> None:
        self.capacity = capacity
        self.per_s = per_s
        self.level = capacity
        self.at_s = now_s

    def refill(self, now_s: float) -> None:
        if now_s > self.at_s:
            level = self.level + (now_s - self.at_s) * self.per_s
            self.level = min(self.capacity, level)
            self.at_s = now_s

    def wait_s(self, amount: float) -> float:
        """Seconds until `amount` is there; more than it can hold is let through when it is full."""
        missing = (min(self.capacity, amount)) - self.level
        return missing / self.per_s if missing > 0 else 0.0

    def resize(self, capacity: float, per_s: float) -> None:
        """What was used stays used."""
        self.level += capacity - self.capacity
        self.capacity = capacity
        self.per_s = per_s


class Buckets:
    """A bucket per name, all alike, the longest idle forgotten first. For doors that few people should use often."""

    def __init__(self, *, burst: float, per_s: float, count_max: int = RATE_METERS_MAX) -> None:
        self._burst = burst
        self._per_s = per_s
        self._count_max = count_max
        self._by_name: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_name)

    def take(self, name: Hashable, *, now_s: float) -> float:
        """Take one. 0 means yes, else the seconds to wait, and nothing was taken."""
        bucket = self._by_name.get(name)
        if bucket is None:
            bucket = self._by_name[name] = Bucket(self._burst, self._per_s, now_s)
            if len(self._by_name) > self._count_max:
                self._by_name.popitem(last=False)
        self._by_name.move_to_end(name)
        bucket.refill(now_s)
        wait_s = bucket.wait_s(1)
        if wait_s == 0.0:
            bucket.level -= 1
        return wait_s


class Meter:
    """What one key, or one address, used of its two limits."""

    __slots__ = ("requests", "requests_per_min", "tokens", "tokens_per_min")

    def __init__(self, requests_per_min: int, tokens_per_min: int, now_s: float) -> None:
        self.requests_per_min = requests_per_min
        self.tokens_per_min = tokens_per_min
        self.requests = Bucket(requests_per_min, requests_per_min / _MIN_S, now_s)
        self.tokens = Bucket(tokens_per_min, tokens_per_min / _MIN_S, now_s)

    def set_limits(self, requests_per_min: int, tokens_per_min: int) -> None:
        self.requests_per_min = requests_per_min
        self.tokens_per_min = tokens_per_min
        self.requests.resize(requests_per_min, requests_per_min / _MIN_S)
        self.tokens.resize(tokens_per_min, tokens_per_min / _MIN_S)

    def wait_s(self, tokens: int, now_s: float) -> float:
        """Seconds until a request of so many tokens may pass."""
        self.requests.refill(now_s)
        self.tokens.refill(now_s)
        return max(self.requests.wait_s(1), self.tokens.wait_s(tokens))

    def charge(self, tokens: int) -> None:
        self.requests.level -= 1
        self.tokens.level -= tokens

    def correct(self, tokens: int) -> None:
        """The request used so many more than was charged at first; fewer if negative."""
        level = self.tokens.level - tokens
        self.tokens.level = min(self.tokens.capacity, level)

    def headers(self, now_s: float) -> dict[str, str]:
        """As OpenAI's clients read them; `reset` is when the bucket is full again."""
        self.requests.refill(now_s)
        self.tokens.refill(now_s)
        return {
            "x-ratelimit-limit-requests": str(self.requests_per_min),
            "x-ratelimit-limit-tokens": str(self.tokens_per_min),
            "x-ratelimit-remaining-requests": _remaining(self.requests),
            "x-ratelimit-remaining-tokens": _remaining(self.tokens),
            "x-ratelimit-reset-requests": _reset(self.requests),
            "x-ratelimit-reset-tokens": _reset(self.tokens),
        }


def _remaining(bucket: Bucket) -> str:
    return str(max(0, int(bucket.level)))


def _reset(bucket: Bucket) -> str:
    """A duration as OpenAI writes it: `1.25s`."""
    return f"{max(0.0, bucket.wait_s(bucket.capacity)):.3f}s"


class Denial(NamedTuple):
    """Who is too fast, and when to come back."""

    who: str
    what: str
    retry_after_s: float


class RateLimits:
    """Every key's and every address's meter. A request passes both or is charged to neither."""

    def __init__(
        self,
        *,
        requests_per_min: int,
        tokens_per_min: int,
        address_requests_per_min: int,
        address_tokens_per_min: int,
        count_max: int = RATE_METERS_MAX,
    ) -> None:
        self._key_limits = requests_per_min, tokens_per_min
        self._address_limits = address_requests_per_min, address_tokens_per_min
        self._count_max = count_max
        self._keys: OrderedDict[str, Meter] = OrderedDict()
        self._addresses: OrderedDict[str, Meter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys) + len(self._addresses)

    def key_meter(
        self, key_id: str, *, now_s: float, requests_per_min: int | None = None, tokens_per_min: int | None = None
    ) -> Meter:
        """The key's meter, with its own limits where it has some."""
        requests, tokens = self._key_limits
        return self._meter(self._keys, key_id, requests_per_min or requests, tokens_per_min or tokens, now_s)

    def address_meter(self, address: str, *, now_s: float) -> Meter:
        requests, tokens = self._address_limits
        return self._meter(self._addresses, address, requests, tokens, now_s)

    def admit(self, key: Meter, address: Meter, *, tokens: int, now_s: float) -> Denial | None:
        """Charge one request of `tokens` to both meters, or say who has to wait."""
        key_wait_s = key.wait_s(tokens, now_s)
        address_wait_s = address.wait_s(tokens, now_s)
        if key_wait_s == 0.0 and address_wait_s == 0.0:
            key.charge(tokens)
            address.charge(tokens)
            return None
        if key_wait_s >= address_wait_s:
            return _denial("key", key, key_wait_s)
        return _denial("address", address, address_wait_s)

    def _meter(
        self, meters: OrderedDict[str, Meter], name: str, requests_per_min: int, tokens_per_min: int, now_s: float
    ) -> Meter:
        meter = meters.get(name)
        if meter is None:
            meter = meters[name] = Meter(requests_per_min, tokens_per_min, now_s)
            if len(meters) > self._count_max:
                meters.popitem(last=False)
            return meter
        meters.move_to_end(name)
        if meter.requests_per_min != requests_per_min or meter.tokens_per_min != tokens_per_min:
            meter.set_limits(requests_per_min, tokens_per_min)
        return meter


def _denial(who: str, meter: Meter, wait_s: float) -> Denial:
    what = "requests" if meter.requests.wait_s(1) == wait_s else "tokens"
    return Denial(who, what, min(wait_s, RETRY_AFTER_S_MAX))
