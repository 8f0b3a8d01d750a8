"""The last matches in the order of their start: as they are while they run, packed when they are over.

Ten thousand are kept and hardly one is looked at. A packed one is two small objects beside its decision, and nothing
that the garbage collector goes through; whoever asks for it gets a `MatchRecord` again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from sparewatt.core.ids import KeyId, MatchId
from sparewatt.core.limits import MATCHES_KEPT
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome, Reassignment
from sparewatt.inference.matcher.model import Decision

_Written = tuple[KeyId, float, Outcome, list[AttemptRecord], int | None, str | None, str | None, float, bool]
"""A record's own fields in their order, but for its id, its decision and its moves."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Written).decode


class PackedRecord(msgspec.Struct, frozen=True, gc=False):
    """A match that is over."""

    decision: Decision
    moves: tuple[Reassignment, ...]
    written: bytes


def pack(record: MatchRecord) -> PackedRecord:
    written: _Written = (
        record.key_id,
        record.created_unix_s,
        record.outcome,
        record.attempts,
        record.error_status,
        record.error_code,
        record.broke,
        record.match_s,
        record.streamed,
    )
    return PackedRecord(record.decision, record.moves, _encode(written))


def unpack(match_id: MatchId, packed: PackedRecord) -> MatchRecord:
    key_id, created_unix_s, outcome, attempts, status, code, broke, match_s, streamed = _decode(packed.written)
    return MatchRecord(
        match_id,
        key_id,
        created_unix_s,
        packed.decision,
        outcome,
        attempts,
        packed.moves,
        status,
        code,
        broke,
        match_s,
        streamed,
    )


class MatchRing:
    __slots__ = ("_kept", "_order", "_size")

    def __init__(self, size: int = MATCHES_KEPT) -> None:
        self._size = size
        self._order: deque[MatchId] = deque()
        self._kept: dict[MatchId, MatchRecord | PackedRecord] = {}

    def add(self, record: MatchRecord) -> None:
        """A match that begins. The oldest goes."""
        if record.id not in self._kept:
            self._order.append(record.id)
            if len(self._order) > self._size:
                del self._kept[self._order.popleft()]
        self._kept[record.id] = record

    def pack(self, record: MatchRecord) -> None:
        """It is over, and will not change any more."""
        if self._kept.get(record.id) is record:
            self._kept[record.id] = pack(record)

    def get(self, match_id: MatchId) -> MatchRecord | None:
        found = self._kept.get(match_id)
        return unpack(match_id, found) if isinstance(found, PackedRecord) else found

    def latest(self) -> Iterator[MatchRecord]:
        """The latest first; not to be held over a tick of the event loop, in which others may begin."""
        for match_id in reversed(self._order):
            found = self._kept[match_id]
            yield unpack(match_id, found) if isinstance(found, PackedRecord) else found

    def clear(self) -> None:
        self._order.clear()
        self._kept.clear()
