"""The history of the last matches: a ring in memory of ten thousand, of which hardly one is ever read.

A match that has ended is packed: its numbers become one piece of bytes, and nodes are named by the ids that the table
has anyway. What is left is a few small objects, none of which the garbage collector walks; `get` unpacks them. The
nodes that a match rejected are mostly those that the one before rejected, too: then both have the same list.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec
import numpy as np

from sparewatt.core.ids import KeyId, MatchId, ModelId, NodeId
from sparewatt.core.limits import MATCHES_KEPT
from sparewatt.inference.dispatch.model import AttemptRecord, MatchRecord, Outcome, Reassignment
from sparewatt.inference.matcher.columns import Floats
from sparewatt.inference.matcher.formula import NO_PREFERENCE, Preference
from sparewatt.inference.matcher.model import REJECTED_WIDTH, SCAN_REJECTIONS, Decision, MatchJob, Rejection

MODELS_SHARING_MAX = 256
"""Models whose last list of rejected nodes is at hand for the next match."""
_HAS_FIGURES = np.array(
    [reason in {Rejection.PROMPT_TOO_LONG, Rejection.TOO_LITTLE_VRAM, Rejection.FULL} for reason in SCAN_REJECTIONS]
)
"""Whether an explanation of this reason says how much was needed and how much there was."""


class WrittenRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a record that is packed into bytes: its own fields, and its decision's."""

    key_id: KeyId
    created_unix_s: float
    outcome: Outcome
    attempts: list[AttemptRecord]
    reassignments: tuple[Reassignment, ...]
    error_status: int | None
    error_code: str | None
    stream_error_code: str | None
    match_s: float
    streamed: bool

    model: ModelId
    prompt_tokens: int
    output_tokens: int
    prompt_tokens_floor: int
    ranking: str
    total: int
    ranked_rows: bytes
    rejected_counts: tuple[int, ...]
    not_shortlisted: int
    without_model: int
    rejected_by_policy: dict[str, int]
    cached_tokens: dict[NodeId, int]
    is_turn: bool


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WrittenRecord).decode


class RejectedList(msgspec.Struct, frozen=True, gc=False):
    """The nodes that a decision names as rejected."""

    node_ids: tuple[NodeId, ...]
    reasons: bytes
    """Of each, the index in SCAN_REJECTIONS."""
    figures: bytes
    """REJECTED_FIELDS as doubles, of those that are rejected for too little of something."""


NOBODY_REJECTED = RejectedList((), b"", b"")


class PackedRecord(msgspec.Struct, frozen=True, gc=False):
    """A match that is over."""

    packed: bytes
    ranked: tuple[NodeId, ...]
    rejected: RejectedList
    preference: Preference = NO_PREFERENCE


class RejectedListSharing:
    """Packs the rejected nodes of decisions; equal ones of a model that follow each other are one object."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[ModelId, tuple[bytes, tuple[NodeId, ...], RejectedList]] = {}
        """By model: the rows and nodes of the last decision, and what they became."""

    def pack(self, decision: Decision) -> RejectedList:
        rows, nodes, model = decision.rejected_rows, decision.node_ids, decision.job.model
        if not rows:
            return NOBODY_REJECTED
        last = self._last.get(model)
        if last is not None and last[1] is nodes and last[0] == rows:
            return last[2]
        made = pack_rejected(rows, nodes)
        if last is not None and last[2] == made:
            made = last[2]
        elif last is None and len(self._last) >= MODELS_SHARING_MAX:
            self._last.clear()
        self._last[model] = rows, nodes, made
        return made


def pack_rejected(rows: bytes, nodes: tuple[NodeId, ...]) -> RejectedList:
    numbers: Floats = np.frombuffer(rows).reshape(-1, REJECTED_WIDTH)
    positions, reasons = numbers[:, 0].astype(np.intp).tolist(), numbers[:, 1].astype(np.uint8)
    figures = numbers[_HAS_FIGURES[reasons], 2:]
    return RejectedList(tuple([nodes[position] for position in positions]), reasons.tobytes(), figures.tobytes())


def unpack_rejected(rejected: RejectedList, *, first: int) -> bytes:
    """As rows of a decision, whose positions begin with `first`."""
    reasons = np.frombuffer(rejected.reasons, np.uint8)
    numbers = np.zeros((len(reasons), REJECTED_WIDTH))
    numbers[:, 0] = np.arange(first, first + len(reasons))
    numbers[:, 1] = reasons
    numbers[_HAS_FIGURES[reasons], 2:] = np.frombuffer(rejected.figures).reshape(-1, REJECTED_WIDTH - 2)
    return numbers.tobytes()


def pack(record: MatchRecord, sharing: RejectedListSharing) -> PackedRecord:
    decision = record.decision
    job, nodes, rows = decision.job, decision.node_ids, decision.ranked_rows
    written = WrittenRecord(
        record.key_id, record.created_unix_s, record.outcome, record.attempts, record.reassignments,
        record.error_status, record.error_code, record.stream_error_code, record.match_s, record.streamed,
        job.model, job.prompt_tokens, job.output_tokens, job.prompt_tokens_floor,
        decision.ranking, decision.total, rows, tuple(decision.rejected_counts), decision.not_shortlisted,
        decision.without_model, dict(decision.rejected_by_policy), dict(decision.cached_tokens), decision.is_turn,
    )  # fmt: skip
    ranked: tuple[NodeId, ...] = ()
    if count := decision.ranked_count:
        numbers = memoryview(rows).cast("d")
        ranked = tuple([nodes[int(position)] for position in numbers[:: len(numbers) // count]])
    return PackedRecord(_encode(written), ranked, sharing.pack(decision), job.preference)


def unpack(match_id: MatchId, packed: PackedRecord) -> MatchRecord:
    written = _decode(packed.packed)
    return MatchRecord(
        match_id,
        written.key_id,
        written.created_unix_s,
        _decision(match_id, packed, written),
        written.outcome,
        written.attempts,
        written.reassignments,
        written.error_status,
        written.error_code,
        written.stream_error_code,
        written.match_s,
        written.streamed,
    )


def _decision(match_id: MatchId, packed: PackedRecord, written: WrittenRecord) -> Decision:
    job = MatchJob(
        match_id,
        written.model,
        written.prompt_tokens,
        written.output_tokens,
        written.prompt_tokens_floor,
        packed.preference,
    )
    ranked, rejected = packed.ranked, packed.rejected
    return Decision(
        job=job,
        ranking=written.ranking,
        total=written.total,
        ranked_count=len(ranked),
        ranked_rows=_with_new_positions(written.ranked_rows, len(ranked)),
        node_ids=ranked + rejected.node_ids,
        rejected_rows=unpack_rejected(rejected, first=len(ranked)),
        rejected_counts=written.rejected_counts,
        not_shortlisted=written.not_shortlisted,
        without_model=written.without_model,
        rejected_by_policy=written.rejected_by_policy,
        cached_tokens=written.cached_tokens,
        is_turn=written.is_turn,
    )


def _with_new_positions(rows: bytes, count: int) -> bytes:
    """Of the nodes that are left, the ranked ones come first."""
    if not count:
        return b""
    numbers = np.frombuffer(rows).reshape(count, -1).copy()
    numbers[:, 0] = np.arange(count)
    return numbers.tobytes()


class MatchRing:
    __slots__ = ("_order", "_records", "_sharing", "_size")

    def __init__(self, size: int = MATCHES_KEPT) -> None:
        self._size = size
        self._order: deque[MatchId] = deque()
        self._records: dict[MatchId, MatchRecord | PackedRecord] = {}
        self._sharing = RejectedListSharing()

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
            self._records[record.id] = pack(record, self._sharing)

    def get(self, match_id: MatchId) -> MatchRecord | None:
        found = self._records.get(match_id)
        return unpack(match_id, found) if isinstance(found, PackedRecord) else found

    def latest(self) -> Iterator[MatchRecord]:
        """The latest first. Iterate it within one tick of the event loop: new matches change it."""
        for match_id in reversed(self._order):
            found = self._records[match_id]
            yield unpack(match_id, found) if isinstance(found, PackedRecord) else found
