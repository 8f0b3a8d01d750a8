"""A match that was packed away is the same when somebody asks for it, whatever became of it."""

from __future__ import annotations

from array import array

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sparewatt.core.ids import AccountId, KeyId, MatchId
from sparewatt.inference.dispatch.match_ring import MatchRing, PackedRecord, RejectedListSharing, pack, unpack
from sparewatt.inference.dispatch.model import AttemptRecord, DeliveryCount, MatchRecord, Outcome, Reassignment
from sparewatt.inference.matcher.formula import BALANCED
from sparewatt.inference.matcher.match import match
from sparewatt.inference.matcher.model import REJECTED_FIELDS, REJECTIONS_KEPT, SCAN_REJECTIONS, Candidate, Decision
from tests.unit.inference.nodes import a_job, a_table, node_id, situation

DECISION = match(a_job(), a_table(3), situation(), ranking=BALANCED, seed=1)
NODES = tuple(node_id(number) for number in range(200))
finite = st.floats(allow_nan=False)
counts = st.integers(0, 2**62)
times = st.floats(0.0, 1e9)
maybe_times = st.none() | times
words = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
outcomes = st.sampled_from(Outcome)
seen = st.builds(
    DeliveryCount,
    chunks=counts,
    text_bytes=counts,
    prompt_tokens=st.none() | counts,
    completion_tokens=st.none() | counts,
    finish_reason=words,
)
attempts = st.builds(
    AttemptRecord,
    st.integers(1, 9).map(node_id),
    times,
    outcomes,
    words,
    maybe_times,
    maybe_times,
    counts,
    st.none() | st.just(AccountId("acc_a")),
    counts,
    counts,
    st.none() | seen,
    counts,
    counts,
    counts,
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any number of nodes, anywhere among two hundred."""
    ranked = draw(
        st.lists(st.tuples(st.integers(0, 199), *[finite] * 3, st.floats(0.0, 1e3), *[finite] * 11), max_size=8)
    )
    stopped = st.tuples(
        st.integers(0, 199),
        st.integers(0, len(SCAN_REJECTIONS) - 1),
        *[st.floats(0.0, 1e12)] * len(REJECTED_FIELDS),
    )
    rows = (array("d", [float(each) for row in lines for each in row]) for lines in (ranked, draw(st.lists(stopped))))
    told, rejected = (row.tobytes() for row in rows)
    return Decision(
        a_job(),
        "balanced",
        draw(counts),
        len(ranked),
        told,
        NODES,
        rejected,
        draw(st.just(()) | st.just([0, 2, 0])),
        draw(counts),
        draw(counts),
        draw(st.dictionaries(st.sampled_from(["region", "only"]), counts)),
        draw(st.dictionaries(st.sampled_from(NODES[:3]), counts)),
        draw(st.booleans()),
    )


moves = st.just(()) | st.just((Reassignment(1, (Candidate(node_id(2), 1.0, (0.5,), 0.1, 0.2, 7),)),))
any_records = st.builds(
    MatchRecord,
    st.integers(0, 30).map(lambda number: MatchId(f"match_{number}")),
    st.just(KeyId("key_a")),
    times,
    st.just(DECISION) | decisions(),
    outcomes,
    st.lists(attempts, max_size=4),
    moves,
    st.none() | st.integers(400, 599),
    words,
    words,
    times,
    st.booleans(),
)


def of_its_id(record: MatchRecord) -> MatchRecord:
    """A decision is about the job that the record has its id from."""
    job = msgspec.structs.replace(record.decision.job, id=record.id)
    return msgspec.structs.replace(record, decision=msgspec.structs.replace(record.decision, job=job))


records = any_records.map(of_its_id)


@given(st.lists(records, min_size=1, max_size=3))
def test_what_is_packed_comes_back_as_it_was(told: list[MatchRecord]) -> None:
    sharing = RejectedListSharing()
    for record in [*told, told[0]]:
        found = unpack(record.id, pack(record, sharing))
        assert found == record
        assert found.decision.cached_tokens == record.decision.cached_tokens
        assert found.decision.is_turn is record.decision.is_turn


def test_nodes_that_stay_away_are_listed_once_for_all_matches_that_reject_them() -> None:
    table = a_table(100)
    for number in range(1, 80):
        table.disconnect(node_id(number), unix_s=1.0)
    ring, lists = MatchRing(), set[int]()
    for number in range(50):
        job = a_job(id=MatchId(f"match_{number}"), prompt_tokens=100 + number)
        record = MatchRecord(job.id, KeyId("key_a"), 0.0, match(job, table, situation(), ranking=BALANCED, seed=1))
        ring.add(record)
        ring.pack(record)
        packed = ring._records[record.id]
        assert isinstance(packed, PackedRecord)
        lists.add(id(packed.rejected))
        assert len(packed.rejected.node_ids) == REJECTIONS_KEPT
        assert len(packed.rejected.figures) == 0
        assert ring.get(record.id) == record
    assert len(lists) == 1


@given(st.lists(st.tuples(records, st.booleans()), max_size=40), st.integers(1, 8))
def test_a_ring_shows_the_last_in_order_packed_or_not(told: list[tuple[MatchRecord, bool]], size: int) -> None:
    ring, kept = MatchRing(size), dict[MatchId, MatchRecord]()
    for record, is_over in told:
        ring.add(record)
        kept[record.id] = record
        if len(kept) > size:
            del kept[next(iter(kept))]
        if is_over:
            ring.pack(record)
    assert list(ring.latest()) == list(reversed(kept.values()))
    for record, _ in told:
        assert ring.get(record.id) == kept.get(record.id)


def test_what_has_left_the_ring_is_not_put_back_when_it_is_over() -> None:
    ring = MatchRing(1)
    first, second = (MatchRecord(MatchId(name), KeyId("key_a"), 0.0, DECISION) for name in ("match_1", "match_2"))
    ring.add(first)
    ring.add(second)
    ring.pack(first)
    assert ring.get(first.id) is None
    assert list(ring.latest()) == [second]
