"""`Idempotency-Key`: a request that is sent twice is answered once, and paid once.

Whole answers are kept in memory for a few minutes, bounded in number and size, per API key; nothing of them reaches a
disk or a log, and of a request only a keyed digest is kept. What was streamed is not kept: its repetition is refused,
since a second run would cost a second time. An answer that failed is forgotten, so that the same key can try again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from sparewatt.core.errors import IdempotencyConflict, IdempotencyMismatch, InvalidField
from sparewatt.core.limits import (
    IDEMPOTENT_ANSWER_BYTES_MAX,
    IDEMPOTENT_ANSWERS_BYTES_MAX,
    IDEMPOTENT_ANSWERS_MAX,
    IDEMPOTENT_ANSWERS_PER_KEY_MAX,
    IDEMPOTENT_S,
)

HEADER = "idempotency-key"
REPLAYED = {"idempotency-replayed": "true"}
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_PER_REPLY = frozenset({"content-length", "date", "server", "transfer-encoding", "connection"})

_T = TypeVar("_T")
Which = tuple[str, str]
"""Whose it is (an API key's id), and what the client called it."""


class Kept(NamedTuple):
    """A whole answer."""

    body: bytes
    headers: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers.items())

    def again(self) -> Mapping[str, str]:
        """The headers of an answer that is given a second time."""
        return {**self.headers, **REPLAYED}


def kept(body: bytes, headers: Mapping[str, str]) -> Kept:
    return Kept(body, {name: value for name, value in headers.items() if name.lower() not in _PER_REPLY})


class Made(NamedTuple):
    """What came of producing an answer: whether it is one, and what of it can be kept."""

    is_answer: bool
    kept: Kept | None = None


@dataclass(slots=True)
class Entry:
    digest: bytes
    until_s: float
    over: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Kept | None = None
    """None while it runs, and for what is not kept."""


class Elsewhere(Protocol):
    """The other processes of this gateway: each request that has a name is kept by one of them."""

    def keeps(self, which: Which) -> bool:
        """Whether it is another process that keeps this one."""
        ...

    async def once(
        self,
        which: Which,
        digest: bytes,
        produce: Callable[[], Awaitable[_T]],
        *,
        made: Callable[[_T], Made],
        on_repeat: Callable[[], object],
    ) -> _T | Kept:
        """As `once` does it, with what is kept there."""
        ...


class KeptAnswers:
    """All that one gateway process remembers."""

    def __init__(self) -> None:
        self.elsewhere: Elsewhere | None = None
        self._entries: OrderedDict[Which, Entry] = OrderedDict()
        self._by_key: dict[str, int] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, which: Which, digest: bytes, *, now_s: float) -> tuple[Entry, bool]:
        """What stands under this name, and whether it is new. Raises IdempotencyMismatch."""
        self._forget_old(now_s)
        entry = self._entries.get(which)
        if entry is None:
            self._make_room(which[0])
            entry = self._entries[which] = Entry(digest, now_s + IDEMPOTENT_S)
            self._by_key[which[0]] = self._by_key.get(which[0], 0) + 1
            return entry, True
        if entry.digest != digest:
            raise mismatch()
        return entry, False

    def has(self, which: Which, entry: Entry) -> bool:
        """Whether this entry still stands."""
        return self._entries.get(which) is entry

    def end(self, which: Which, entry: Entry, answer: Kept | None, *, keep: bool) -> None:
        """It is over. `keep` without an answer: there was one, and it is too late to have it again."""
        entry.over.set()
        stands = self.has(which, entry)
        if answer is not None and answer.size_bytes <= IDEMPOTENT_ANSWER_BYTES_MAX:
            entry.answer = answer  # also for those who wait for one that had to make room
            self.size_bytes += answer.size_bytes if stands else 0
        if stands and not keep:
            self._remove(which)
        self._shrink()

    def _forget_old(self, now_s: float) -> None:
        """The oldest come first. What still runs is not forgotten: somebody may wait for it."""
        for which in [which for which, entry in self._oldest() if entry.until_s <= now_s and entry.over.is_set()]:
            self._remove(which)

    def _oldest(self) -> list[tuple[Which, Entry]]:
        return [pair for pair, _ in zip(self._entries.items(), range(_LOOKED_AT), strict=False)]

    def _make_room(self, key: str) -> None:
        if self._by_key.get(key, 0) >= IDEMPOTENT_ANSWERS_PER_KEY_MAX:
            self._remove_first(lambda which: which[0] == key)
        if len(self._entries) >= IDEMPOTENT_ANSWERS_MAX:
            self._remove_first(lambda _: True)

    def _remove_first(self, is_meant: Callable[[Which], bool]) -> None:
        self._remove(next(which for which in self._entries if is_meant(which)))

    def _shrink(self) -> None:
        for which, entry in list(self._entries.items()):
            if self.size_bytes <= IDEMPOTENT_ANSWERS_BYTES_MAX:
                return
            if entry.answer is not None:
                self._remove(which)

    def _remove(self, which: Which) -> None:
        entry = self._entries.pop(which)
        left = self._by_key[which[0]] - 1
        if left:
            self._by_key[which[0]] = left
        else:
            del self._by_key[which[0]]
        if entry.answer is not None:
            self.size_bytes -= entry.answer.size_bytes


_LOOKED_AT = 64
"""Entries that one request looks through for old ones."""


def mismatch() -> IdempotencyMismatch:
    return IdempotencyMismatch(
        "This Idempotency-Key was used for another request. Use a new one for each request, and the same one only to "
        "send the same bytes again.",
        param=HEADER,
    )


def conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "This request was answered before, and its answer is not kept: it was streamed, or is too long. Use another "
        "Idempotency-Key to have it answered, and charged, again.",
        param=HEADER,
    )


def key_of(headers: Mapping[str, str]) -> str | None:
    """What the client calls its request. Raises InvalidField."""
    said = headers.get(HEADER)
    if said is not None and not _KEY.fullmatch(said):
        raise InvalidField("An Idempotency-Key has 1 to 255 visible ASCII characters, e.g. a UUID.", param=HEADER)
    return said


def digest_of(secret: bytes, path: str, body: bytes, *others: str) -> bytes:
    """Of a request: two are the same if this is."""
    state = hashlib.blake2b("\n".join((path, *others)).encode(), key=secret, digest_size=16)
    state.update(b"\0")
    state.update(body)
    return state.digest()


async def once(
    answers: KeptAnswers,
    which: Which,
    digest: bytes,
    produce: Callable[[], Awaitable[_T]],
    *,
    made: Callable[[_T], Made],
    on_repeat: Callable[[], object],
    now_s: Callable[[], float],
) -> _T | Kept:
    """Produce an answer, or give the one that there is. Raises IdempotencyConflict or IdempotencyMismatch."""
    elsewhere = answers.elsewhere
    if elsewhere is not None and elsewhere.keeps(which):
        return await elsewhere.once(which, digest, produce, made=made, on_repeat=on_repeat)
    while True:
        entry, is_new = answers.begin(which, digest, now_s=now_s())
        if is_new:
            return await _first(answers, which, entry, produce, made)
        on_repeat()
        await entry.over.wait()
        if entry.answer is not None:
            return entry.answer
        if answers.has(which, entry):
            raise conflict()


async def _first(
    answers: KeptAnswers,
    which: Which,
    entry: Entry,
    produce: Callable[[], Awaitable[_T]],
    made: Callable[[_T], Made],
) -> _T:
    came = Made(is_answer=False)
    try:
        reply = await produce()
        came = made(reply)
        return reply
    finally:
        answers.end(which, entry, came.kept if came.is_answer else None, keep=came.is_answer)
