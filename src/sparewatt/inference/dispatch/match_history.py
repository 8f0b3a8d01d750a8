"""The last matches: a ring in memory, and a bounded queue of those whose explanations are stored for longer.

The ring holds ten thousand, and hardly one is ever read. When a match ends it is packed: two small objects beside its
decision, and nothing that the garbage collector walks; `get` unpacks it. Stored are one match in a hundred and every
failure. The request path only appends to the queue; a background task empties it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec

from sparewatt.core.ids import KeyId, MatchId
from sparewatt.core.limits import MATCHES_KEPT, MATCHES_TO_STORE_MAX
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome, Reassignment
from sparewatt.inference.matcher.model import Decision

_Written = tuple[KeyId, float, Outcome, list[AttemptRecord], int | None, str | None, str | None, float, bool]
"""A record's own fields in their order, but for its id, its decision and its moves."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Written).decode


class PackedRecord(msgspec.Struct, frozen=True, gc=False):
    """A match that is over."""

    decision: Decision
    reassignments: tuple[Reassignment, ...]
    packed: bytes


def pack(record: MatchRecord) -> PackedRecord:
    written: _Written = (
        record.key_id,
        record.created_unix_s,
        record.outcome,
        record.attempts,
        record.error_status,
        record.error_code,
        record.stream_error_code,
        record.match_s,
        record.streamed,
    )
    return PackedRecord(record.decision, record.reassignments, _encode(written))


def unpack(match_id: MatchId, packed: PackedRecord) -> MatchRecord:
    key_id, created_unix_s, outcome, attempts, status, code, broke, match_s, streamed = _decode(packed.packed)
    return MatchRecord(
        match_id,
        key_id,
        created_unix_s,
        packed.decision,
        outcome,
        attempts,
        packed.reassignments,
        status,
        code,
        broke,
        match_s,
        streamed,
    )


class MatchRing:
    __slots__ = ("_order", "_records", "_size")

    def __init__(self, size: int = MATCHES_KEPT) -> None:
        self._size = size
        self._order: deque[MatchId] = deque()
        self._records: dict[MatchId, MatchRecord | PackedRecord] = {}

    def add(self, record: MatchRecord) -> None:
        """A match that begins. The oldest goes."""
        if record.id not in self._records:
            self._order.append(record.id)
            if len(self._order) > self._size:
                del self._records[self._order.popleft()]
        self._records[record.id] = record

    def pack(self, record: MatchRecord) -> None:
        """It is over, and will not change any more."""
        if self._records.get(record.id) is record:
            self._records[record.id] = pack(record)

    def get(self, match_id: MatchId) -> MatchRecord | None:
        found = self._records.get(match_id)
        return unpack(match_id, found) if isinstance(found, PackedRecord) else found

    def latest(self) -> Iterator[MatchRecord]:
        """The latest first. Iterate it within one tick of the event loop: new matches change it."""
        for match_id in reversed(self._order):
            found = self._records[match_id]
            yield unpack(match_id, found) if isinstance(found, PackedRecord) else found


ONE_IN = 100
_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT)


def is_worth_storing(record: MatchRecord) -> bool:
    """By the id and not by chance, so that every process would choose the same."""
    return record.outcome in _FAILURES or crc32(record.id.encode()) % ONE_IN == 0


class ExplanationQueue:
    def __init__(self) -> None:
        self._waiting: deque[MatchRecord] = deque(maxlen=MATCHES_TO_STORE_MAX)
        self.dropped = 0
        """Records that were dropped because storing did not keep up."""

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, record: MatchRecord) -> None:
        if is_worth_storing(record):
            self.dropped += len(self._waiting) == MATCHES_TO_STORE_MAX
            self._waiting.append(record)  # the oldest goes

    def take(self, count: int) -> list[MatchRecord]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def return_unstored(self, records: Sequence[MatchRecord]) -> None:
        """They could not be stored: next time, as far as there is room."""
        room = MATCHES_TO_STORE_MAX - len(self._waiting)
        kept = records[len(records) - min(room, len(records)) :]
        self.dropped += len(records) - len(kept)
        self._waiting.extendleft(reversed(kept))
