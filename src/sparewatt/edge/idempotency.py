"""`Idempotency-Key`: a request that is sent twice is answered once, and paid once.

Whole answers are cached in memory for a few minutes, bounded in number and size, per API key. Nothing of them reaches a
disk or a log, and of a request only a keyed digest is stored. A streamed answer is not cached: its repetition is
refused, since a second run would cost a second time. After a failure the same key may be used again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from sparewatt.core.clock import Clock
from sparewatt.core.errors import IdempotencyConflict, IdempotencyMismatch, InvalidField, RateLimited
from sparewatt.core.limits import MIB

IDEMPOTENT_S = 300.0
"""How long a request may be sent again under its Idempotency-Key: clients give up within two minutes."""
IDEMPOTENT_ANSWERS_MAX = 2_000
"""Requests with such a key that a gateway remembers in all; the oldest are evicted first."""
IDEMPOTENT_ANSWERS_PER_KEY_MAX = 200
"""Of those, under one API key."""
IDEMPOTENT_ANSWER_BYTES_MAX = 1 * MIB
"""One cached answer. A longer one is not cached."""
IDEMPOTENT_ANSWERS_BYTES_MAX = 64 * MIB
"""All cached answers together."""

HEADER = "idempotency-key"
REPLAYED = {"idempotency-replayed": "true"}
BUSY_RETRY_S = 1.0
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_HOP_HEADERS = frozenset({"content-length", "date", "server", "transfer-encoding", "connection"})
_CHECKED_PER_REQUEST = 64
"""Entries that one request checks for expiry."""

_T = TypeVar("_T")
IdempotencyId = tuple[str, str]
"""The id of the API key, and the Idempotency-Key that its holder chose."""


class CachedAnswer(msgspec.Struct, frozen=True):
    body: bytes
    headers: dict[str, str]

    @property
    def size_bytes(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers.items())

    def replay_headers(self) -> Mapping[str, str]:
        return {**self.headers, **REPLAYED}


def cacheable(body: bytes, headers: Mapping[str, str]) -> CachedAnswer:
    """An answer without the headers of its first transmission."""
    return CachedAnswer(body, {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS})


class ProducedAnswer(NamedTuple):
    """Whether there is an answer rather than an error, and what of it can be cached."""

    is_answer: bool
    cached: CachedAnswer | None = None


class Repetition(NamedTuple):
    """A request that names itself by an Idempotency-Key."""

    id: IdempotencyId
    digest: bytes
    """Two requests of one id are the same if this is."""
    on_repeat: Callable[[], object]
    """Called if the cache answers it: a repetition counts against the rate limit too."""


@dataclass(slots=True)
class IdempotencyEntry:
    digest: bytes
    until_s: float
    over: asyncio.Event = field(default_factory=asyncio.Event)
    answer: CachedAnswer | None = None
    """None while it runs, and for what is not cached."""


class IdempotencyCache:
    """The entries of one gateway process."""

    def __init__(self) -> None:
        self._entries: OrderedDict[IdempotencyId, IdempotencyEntry] = OrderedDict()
        self._by_key: dict[str, int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, id_: IdempotencyId, digest: bytes, *, now_s: float) -> tuple[IdempotencyEntry, bool]:
        """The entry of this id, and whether it is new. Raises IdempotencyMismatch or RateLimited."""
        self._forget_expired(now_s)
        entry = self._entries.get(id_)
        if entry is None:
            self._make_room(id_[0])
            entry = self._entries[id_] = IdempotencyEntry(digest, now_s + IDEMPOTENT_S)
            self._by_key[id_[0]] = self._by_key.get(id_[0], 0) + 1
            return entry, True
        if entry.digest != digest:
            raise mismatch()
        return entry, False

    def has(self, id_: IdempotencyId, entry: IdempotencyEntry) -> bool:
        """Whether this entry was not removed meanwhile."""
        return self._entries.get(id_) is entry

    def end(self, id_: IdempotencyId, entry: IdempotencyEntry, answer: CachedAnswer | None, *, keep: bool) -> None:
        """Record the outcome. `keep` without an answer: the client got one, but it is not cached."""
        entry.over.set()
        if answer is not None and answer.size_bytes <= IDEMPOTENT_ANSWER_BYTES_MAX:
            entry.answer = answer
            self.size_bytes += answer.size_bytes
        if not keep:
            self._remove(id_)
        self._shrink()

    def _forget_expired(self, now_s: float) -> None:
        """Remove expired entries, the oldest first. A running one stays: repetitions may wait for it."""
        oldest = list(islice(self._entries.items(), _CHECKED_PER_REQUEST))
        for id_ in [id_ for id_, entry in oldest if entry.until_s <= now_s and entry.over.is_set()]:
            self._remove(id_)

    def _make_room(self, key: str) -> None:
        """Evict the oldest entry that is over. A running one stays: its repetition would be paid again."""
        if self._by_key.get(key, 0) >= IDEMPOTENT_ANSWERS_PER_KEY_MAX:
            self._evict(lambda id_: id_[0] == key)
        if len(self._entries) >= IDEMPOTENT_ANSWERS_MAX:
            self._evict(lambda _: True)

    def _evict(self, is_candidate: Callable[[IdempotencyId], bool]) -> None:
        over = (id_ for id_, entry in self._entries.items() if is_candidate(id_) and entry.over.is_set())
        oldest = next(over, None)
        if oldest is None:
            raise too_many_running()
        self._remove(oldest)

    def _shrink(self) -> None:
        for id_, entry in list(self._entries.items()):
            if self.size_bytes <= IDEMPOTENT_ANSWERS_BYTES_MAX:
                return
            if entry.answer is not None:
                self._remove(id_)

    def _remove(self, id_: IdempotencyId) -> None:
        entry = self._entries.pop(id_)
        left = self._by_key[id_[0]] - 1
        if left:
            self._by_key[id_[0]] = left
        else:
            del self._by_key[id_[0]]
        if entry.answer is not None:
            self.size_bytes -= entry.answer.size_bytes


class IdempotencyPeers(Protocol):
    """The other processes of this gateway. Every id belongs to the cache of one process."""

    def is_owned_by_peer(self, id_: IdempotencyId) -> bool: ...

    async def once(
        self,
        repetition: Repetition,
        produce: Callable[[], Awaitable[_T]],
        *,
        outcome: Callable[[_T], ProducedAnswer],
    ) -> _T | CachedAnswer:
        """As `Idempotency.once`, with the cache of the process that owns it."""


@dataclass(slots=True, kw_only=True)
class Idempotency:
    """Answers each request with an Idempotency-Key once, over all processes of a gateway."""

    cache: IdempotencyCache
    secret: bytes = field(repr=False)
    """Keys the digests; the same in every process of the gateway."""
    clock: Clock
    peers: IdempotencyPeers | None = None

    def digest(self, path: str, body: bytes, *options: str) -> bytes:
        """Two requests are the same if their digests are."""
        state = hashlib.blake2b("\n".join((path, *options)).encode(), key=self.secret, digest_size=16)
        state.update(b"\0")
        state.update(body)
        return state.digest()

    async def once(
        self,
        repetition: Repetition,
        produce: Callable[[], Awaitable[_T]],
        *,
        outcome: Callable[[_T], ProducedAnswer],
    ) -> _T | CachedAnswer:
        """Produce an answer, or return the cached one.

        Raises IdempotencyConflict, IdempotencyMismatch or RateLimited.
        """
        id_, peers, cache = repetition.id, self.peers, self.cache
        if peers is not None and peers.is_owned_by_peer(id_):
            return await peers.once(repetition, produce, outcome=outcome)
        while True:
            entry, is_new = cache.begin(id_, repetition.digest, now_s=self.clock.now_s())
            if is_new:
                return await produce_and_settle(produce, outcome, partial(cache.end, id_, entry))
            repetition.on_repeat()
            await entry.over.wait()
            if entry.answer is not None:
                return entry.answer
            if cache.has(id_, entry):
                raise conflict()


class Settle(Protocol):
    def __call__(self, answer: CachedAnswer | None, *, keep: bool) -> None: ...


async def produce_and_settle(
    produce: Callable[[], Awaitable[_T]], outcome: Callable[[_T], ProducedAnswer], settle: Settle
) -> _T:
    """Produce the answer of a new entry. The outcome is recorded however that ends."""
    produced = ProducedAnswer(is_answer=False)
    try:
        reply = await produce()
        produced = outcome(reply)
        return reply
    finally:
        settle(produced.cached if produced.is_answer else None, keep=produced.is_answer)


def key_of(headers: Mapping[str, str]) -> str | None:
    """The client's Idempotency-Key, if it sent one. Raises InvalidField."""
    value = headers.get(HEADER)
    if value is not None and not _KEY.fullmatch(value):
        raise InvalidField("An Idempotency-Key has 1 to 255 visible ASCII characters, e.g. a UUID.", param=HEADER)
    return value


def mismatch() -> IdempotencyMismatch:
    return IdempotencyMismatch(
        "This Idempotency-Key was used for another request. Use a new one for each request, and the same one only to "
        "send the same bytes again.",
        param=HEADER,
    )


def conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "This request was answered before, and its answer is not cached: it was streamed, or is too long. Use another "
        "Idempotency-Key to have it answered, and charged, again.",
        param=HEADER,
    )


def too_many_running() -> RateLimited:
    return RateLimited(
        "Too many requests with an Idempotency-Key are running at once. Wait for one to end, or send this one without.",
        retry_after_s=BUSY_RETRY_S,
    )
